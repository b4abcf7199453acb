"""Trains the values of the form `evidence-sets`: `minilm-evidence`; `corag train value`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import search
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.encoders import TextEncoder
from corag.models.minilm import MAX_TOKENS, minilm_encoder
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.evidence.hypotheses import Hypotheses, weigh
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import FORM, VOCABULARY, EvidenceParts
from corag.rerankers.evidence.signals import PAIRS, SINGLES, read_question, signals
from corag.rerankers.evidence.values import EvidenceScorer, Weights
from corag.text.documents import passage
from corag.types import FloatArray, Order
from experiments.adapters.config import ValueTraining
from experiments.adapters.pools import Pooled, open_folder, questions_by_unit
from experiments.adapters.training import (
    Fit,
    Learned,
    calibration_error,
    facts_table,
    fit_sigmoid,
    train_once,
)
from experiments.adapters.value_fit import (
    MEMBERS,
    ValueBatches,
    ValueExample,
    example_of,
    fit_networks,
    fit_order,
    order_accuracy,
)
from experiments.data.pools import shared_encoder
from experiments.run.journal import fingerprint

ABOUT = """\
Values ordered combinations of chunks for a question by the probability that they hold all evidence, the expected share
of it, and their order. Small networks on the frozen encoder all-MiniLM-L6-v2 (Apache-2.0), in the format
`evidence-sets` of `corag/rerankers/evidence/`. They run in NumPy; an order costs microseconds.
"""
CALIBRATED = """\
On questions that the networks in question have not learned from. A value is calibrated to the probability that an order
holds all evidence, over the orders that the tree search scores."""
MEASURED = """\
What it selects under a budget beside other methods: `corag evaluate --config experiments/configs/comparison.yaml`."""
TEMPERATURES = np.geomspace(0.5, 4.0, 43)
BUDGETS, ORDERS_MET = (256, 384), 100
"""Orders of a question that the calibration looks at, for each budget."""
MOST_CALIBRATED = 1500
"""Questions, drawn from all, that temperature, slope and offset are fitted on."""
PARTS = 4
"""Parts of the questions that are left out in turn if all are of one kind."""


@in_runtime
def train_value(config: ValueTraining) -> Path:
    """Train, calibrate and measure a value; see `train_once`.

    A data folder that is missing or damaged, or has nothing to learn, is a `DataError`.
    """
    work = fingerprint(config.work | {"precision": resolve_device("embedder").precision})
    use = f'corag.reranker("{config.name}")'
    return train_once(config, work, partial(_learned, config), about=ABOUT, use=use)


def _learned(config: ValueTraining, fit: Fit) -> Learned:
    out = Path(config.out)
    encoder = shared_encoder()
    rarity = _rarity(config)
    training = _training_questions(config, encoder, rarity)
    left_out, network = _fitted(config, training, fit)
    order, order_figures = _fit_order(config, training)
    parts = EvidenceParts(config.name, config.max_size, network, rarity, order, Weights())
    cases = [(example, left_out[example.kind]) for example in training]
    if config.calibration:
        others = _training_questions(replace(config, sources=config.calibration), encoder, rarity)
        cases = [(example, network) for example in others]
    parts, figures = _calibrated(config, parts, cases)
    figures |= {f"reading order: {name}": value for name, value in order_figures.items()}
    described = {**parts.settings(), **{name: config.work[name] for name in ("sources", "units", "seed")}}
    # Rounded to half precision.
    folders = {out / "draft": network, **{out / "left-out" / kind: alone for kind, alone in left_out.items()}}
    for folder, of_folder in folders.items():
        tensors = replace(parts, network=of_folder).tensors()
        save_adapter(folder, tensors, AdapterConfig(config.name, FORM, described), "")
    facts = {
        "questions": len({example.pooled.id for example in training}),
        "without evidence": sum(not example.pooled.golds for example in training),
        "networks": MEMBERS,
        "value": parts.weights,
    }
    return Learned(load_adapter(out / "draft"), figures, [CALIBRATED, facts_table(figures), MEASURED], facts)


def _fitted(config: ValueTraining, training: Sequence[ValueExample], fit: Fit) -> tuple[dict[str, Ensemble], Ensemble]:
    """Return a network for each kind that has not learned from it, and the whole ensemble."""
    kinds = list(dict.fromkeys(example.kind for example in training))
    if len(kinds) == 1:
        raise DataError(f"all {len(training)} questions to learn from are alike, {kinds[0]!r}; give more questions")
    # First a network for each kind, which learns from the others, then the members of the ensemble.
    fold = [kinds.index(example.kind) for example in training]
    counts = np.ones((len(training), len(kinds) + MEMBERS))
    counts[np.arange(len(training)), fold] = 0
    seeds = [*[config.seed] * len(kinds), *(config.seed + number for number in range(MEMBERS))]
    batches = ValueBatches(training, counts, config.seed)
    module = fit_networks(batches, seeds, config, fit, resolve_device("reranker").device)
    networks = {kind: module.ensemble(slice(row, row + 1)) for row, kind in enumerate(kinds)}
    return networks, module.ensemble(slice(len(kinds), None))


def _rarity(config: ValueTraining) -> FloatArray:
    """Return how rare each token is in the passages of the sources (the inverse document frequency of BM25)."""
    holders, total = np.zeros(VOCABULARY), 0
    for source in {source.data: source for source in config.sources}.values():
        documents = list(open_folder(source, config.data).documents.values())
        for ids in minilm_encoder().whole_ids([passage(document).text for document in documents]):
            holders[np.unique(ids[:MAX_TOKENS])] += 1
        total += len(documents)
    return np.log1p((total - holders + 0.5) / (holders + 0.5)).astype(np.float16).astype(np.float64)


def _training_questions(config: ValueTraining, encoder: TextEncoder, rarity: FloatArray) -> list[ValueExample]:
    learned: list[ValueExample] = []
    several = len({source.kind for source in config.sources}) > 1
    by_source = [questions_by_unit(source, config.data, encoder, config.units) for source in config.sources]
    for unit in config.units:
        for source, by_unit in zip(config.sources, by_source, strict=True):
            read = PassageReader(encoder)
            with progress(f"describe {source.data} by {unit}", quiet=config.quiet) as report:
                for number, pooled in enumerate(by_unit[unit], start=1):
                    question = read_question(encoder, pooled.question, rarity)
                    passages, sources = read.with_sources(pooled.chunks)
                    if source.data not in config.order_sources or not pooled.golds:
                        pooled = replace(pooled, ordered=())
                    seen = signals(question, passages, pooled.chunks, sources)
                    kind = source.kind if several else f"part {_part(pooled.id, config)}"
                    if (example := example_of(pooled, seen, config.max_size, kind, source.weight)) is not None:
                        learned.append(example)
                    report(number, len(by_unit[unit]))
    if not any(example.num_true for example in learned):
        raise DataError(f"no question of the sources has evidence of at most {config.max_size} passages")
    return learned


def _part(name: str, config: ValueTraining) -> int:
    return int(hashlib.sha256(f"{config.seed} {name}".encode()).hexdigest(), 16) % PARTS


def _fit_order(config: ValueTraining, training: Sequence[ValueExample]) -> tuple[FloatArray, dict[str, float]]:
    """Fit the reading order, and measure it on a part that another fit has not seen."""
    parts = [(_part(example.pooled.id, config), example) for example in training if example.pooled.ordered]
    if not parts:
        return np.zeros(len(SINGLES) + len(PAIRS)), {}
    seen = fit_order([example for part, example in parts if part])
    return fit_order([example for _, example in parts]), order_accuracy([one for part, one in parts if not part], seen)


def _calibrated(
    config: ValueTraining, parts: EvidenceParts, questions: Sequence[tuple[ValueExample, Ensemble]]
) -> tuple[EvidenceParts, dict[str, float]]:
    """Fit temperature, slope and offset on questions, each with a network that has not learned from it."""
    drawn = np.sort(np.random.default_rng(config.seed).permutation(len(questions))[:MOST_CALIBRATED]).tolist()
    cases = []
    for example, network in (questions[row] for row in drawn):
        weighed = weigh(example.signals, config.max_size, network)
        true = set(example.pooled.golds or [()])  # the empty hypothesis, if the evidence is not there
        rows = [row for row, chosen in enumerate(weighed.sets) if chosen in true]
        cases.append((example, weighed, rows))
    losses = [
        float(np.mean([_loss(weighed, rows, temperature) for _, weighed, rows in cases]))
        for temperature in TEMPERATURES.tolist()
    ]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    # With slope 1 and offset 0 the logit of a value is the utility itself.
    plain = replace(parts.weights, temperature=temperature, slope=1.0, offset=0.0)
    utilities: list[FloatArray] = []
    complete: list[FloatArray] = []
    kinds: list[str] = []
    for row, (example, weighed, _) in enumerate(cases):
        n = len(example.pooled.chunks)
        tokens = example.signals.singles[:, SINGLES.index("length")] * 128
        scorer = EvidenceScorer(weighed, tokens, np.zeros((n, n)), plain, np.zeros(n, dtype=bool))
        orders, holds_all = _met(scorer, example.pooled, config.seed + row)
        values = scorer(orders)
        utilities.append(np.log(values) - np.log1p(-values))
        complete.append(holds_all)
        kinds += [example.kind] * len(orders)
    x, right, kind_of = np.concatenate(utilities), np.concatenate(complete), np.array(kinds)
    slope, offset = fit_sigmoid(x, right)
    weights = replace(plain, slope=round(slope, 4), offset=round(offset, 4), temperature=round(temperature, 4))
    confidence = 1 / (1 + np.exp(-(slope * x + offset)))
    errors = {
        f"calibration error, {kind}": round(calibration_error(confidence[kind_of == kind], right[kind_of == kind]), 4)
        for kind in dict.fromkeys(kinds)
    }
    hits = [int(weighed.logits.argmax()) in rows for _, weighed, rows in cases]
    return replace(parts, weights=weights), {
        **errors,
        "loss of the true hypothesis": round(min(losses), 4),
        "most probable hypothesis is true": round(float(np.mean(hits)), 4),
        "calibration error": round(calibration_error(confidence, right), 4),
        "temperature": weights.temperature,
        "slope": weights.slope,
        "offset": weights.offset,
    }


def _loss(weighed: Hypotheses, rows: Sequence[int], temperature: float) -> float:
    # A set that is too weak to be among the hypotheses counts as one in a million.
    return -float(np.log(max(weighed.probabilities(temperature)[rows].sum(), 1e-6)))


def _met(scorer: EvidenceScorer, pooled: Pooled, seed: int) -> tuple[list[Order], FloatArray]:
    """Return orders that searches meet, drawn at random, and whether each holds all of the evidence."""
    costs = [max(1, len(chunk.text) // 4) for chunk in pooled.chunks]  # about four characters a token in English
    orders: list[Order] = []
    for budget in BUDGETS:
        met: list[Order] = []

        def score(some: Sequence[Order], met: list[Order] = met) -> FloatArray:
            met.extend(some)
            return scorer(some)

        search.search(costs, score, budget, search.SearchConfig(iterations=40, exploration=0.001))
        chosen = np.random.default_rng(seed).permutation(len(met))[:ORDERS_MET]
        orders += [met[index] for index in sorted(chosen.tolist())]
    golds = [set(gold) for gold in pooled.golds]
    return orders, np.array([float(any(gold.issubset(order) for gold in golds)) for order in orders])
