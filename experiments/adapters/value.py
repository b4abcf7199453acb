"""Trains the values of the form `evidence-sets`: `minilm-multihop` and its kin; `corag train value`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

import search
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.cached import CachedEncoder
from corag.models.minilm import TextEncoder, minilm_encoder
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.evidence.hypotheses import Hypotheses, weigh
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import FORM, VOCABULARY, EvidenceParts
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    UNIT_PAIRS,
    UNIT_SINGLES,
    QuestionFeatures,
    Signals,
    places,
    read_question,
    signals,
)
from corag.rerankers.evidence.values import EvidenceScorer, Weights
from corag.text.data import DataFolder
from corag.text.documents import passage
from corag.text.units import Unit
from corag.types import Chunk, FloatArray, Order
from experiments.adapters.calibration import calibration_error, fit_sigmoid
from experiments.adapters.card import value_card
from experiments.adapters.config import EvidenceSource, ValueTraining
from experiments.adapters.pools import Corpus, Pooled, cut, pools, questions_of
from experiments.adapters.training import AdapterReport, finished_report, ship
from experiments.adapters.value_fit import (
    Hypothesised,
    ValueExample,
    fit_networks,
    fit_order,
    hypothesise,
    order_accuracy,
)
from experiments.run.journal import fingerprint
from experiments.run.track import UNMEASURED, tracked

TEMPERATURES = np.geomspace(0.5, 4.0, 43)
BUDGETS, ORDERS_MET = (256, 384), 100
"""Orders of a question that the calibration looks at, for each budget."""

Training = Sequence[tuple[Pooled, Hypothesised]]
"""The training questions, as a whole and as the fit sees them."""


@tracked
@in_runtime
def train_value(config: ValueTraining) -> AdapterReport:
    """Train, calibrate, measure, and save the adapter with a model card.

    Token states and the networks of the last whole epoch are kept, so an interrupted training resumes; a finished one
    is not done again.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
    """
    out = Path(config.out)
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet", "states")}
    settings = {name: value for name, value in settings.items() if name not in (*UNMEASURED, *config.runtime_settings)}
    work = fingerprint(settings | {"precision": resolve_device("embedder").precision})
    if (report := finished_report(out, work)) is not None:
        return report
    started = time.perf_counter()
    path = config.states or out / "states.sqlite"
    encoder = CachedEncoder(minilm_encoder(), batch=256, cache_mb=0, path=path)
    rarity = _rarity(config, encoder)
    training = _training_questions(config, encoder, rarity)
    predicted, network = _fitted(config, training)
    order, order_found = _fit_order(config, training)
    parts = EvidenceParts(config.name, config.max_size, network, rarity, order, Weights())
    parts, fitted = _calibrated(config, parts, training, predicted)
    described = {**parts.settings(), "sources": settings["sources"], "seed": config.seed}
    # Rounded to half precision.
    draft = out / "draft"
    save_adapter(draft, parts.tensors(), AdapterConfig(config.name, FORM, described), "")
    figures = {**fitted, **{f"reading order: {name}": value for name, value in order_found.items()}}
    facts = {
        "questions": len({pooled.id for pooled, _ in training}),
        "without evidence": sum(not pooled.golds for pooled, _ in training),
        "hours": round((time.perf_counter() - started) / 3600, 2),
    }
    return ship(out, load_adapter(draft), value_card(config, parts, facts, figures), figures, work)


def _fitted(config: ValueTraining, training: Training) -> tuple[list[Hypotheses], Ensemble]:
    """Return what a network that has not seen a question says about it, for each question, and the whole ensemble."""
    tables = [table for _, table in training]
    names = ("data", "sources", "max_size", "fit", "folds", "seed")
    described = {name: value for name, value in asdict(config).items() if name in names}
    features = [SINGLES, PAIRS, FLAGS, UNIT_SINGLES, UNIT_PAIRS]
    work = fingerprint([described, resolve_device("embedder").precision, features])
    folds = np.array([_fold(pooled.id, config) for pooled, _ in training])
    if len(set(folds.tolist())) == 1:
        raise DataError(
            f"the {len(folds)} questions to learn from all fall into one of {config.folds} folds; give more questions, "
            "or raise folds"
        )
    # First a network for each fold, which learns from the others, then the members of the ensemble.
    counts = np.ones((len(tables), config.folds + config.fit.members))
    counts[np.arange(len(tables)), folds] = 0
    seeds = [*[config.seed] * config.folds, *(config.seed + number for number in range(config.fit.members))]
    device = resolve_device("reranker").device
    module, batches = fit_networks(tables, counts, seeds, config, work, device)
    of_fold = [module.ensemble(slice(fold, fold + 1), batches.standard) for fold in range(config.folds)]
    predicted = [
        weigh(table.example.signals, config.max_size, of_fold[fold]) for table, fold in zip(tables, folds, strict=True)
    ]
    return predicted, module.ensemble(slice(config.folds, None), batches.standard)


def _rarity(config: ValueTraining, encoder: TextEncoder) -> FloatArray:
    """Return how rare each token is in the passages of the sources (the inverse document frequency of BM25)."""
    holders, total = np.zeros(VOCABULARY), 0
    for name in dict.fromkeys(source.data for source in config.sources):
        documents = list(DataFolder.open(Path(config.data) / name).documents.values())
        for ids in encoder.tokenize([passage(document).text for document in documents]).ids:
            holders[np.unique(ids)] += 1
        total += len(documents)
    return np.log1p((total - holders + 0.5) / (holders + 0.5)).astype(np.float16).astype(np.float64)


def _training_questions(config: ValueTraining, encoder: TextEncoder, rarity: FloatArray) -> Training:
    learned: list[tuple[Pooled, Hypothesised]] = []
    for source in config.sources:
        read = PassageReader(encoder)
        questions = _questions(config, source, encoder)
        with progress(f"describe {source.data}", quiet=config.quiet) as report:
            for number, pooled in enumerate(questions, start=1):
                question = read_question(encoder, pooled.question, rarity)
                example = ValueExample(
                    f"{pooled.id} {len(pooled.chunks)}",
                    _signals(config, read, question, pooled.chunks),
                    pooled.golds,
                    pooled.ordered if source.data in config.order_sources and pooled.gold else (),
                    source.weight,
                )
                if (table := hypothesise(example, config.max_size, config.fit)) is not None:
                    learned.append((pooled, table))
                report(number, len(questions))
    if not any(table.num_true for _, table in learned):
        raise DataError(f"no question of the sources has evidence of at most {config.max_size} passages")
    return learned


def _signals(
    config: ValueTraining, read: PassageReader, question: QuestionFeatures, chunks: Sequence[Chunk]
) -> Signals:
    passages, sources = read.with_sources(chunks)
    known = places(question, chunks, passages, sources) if config.units else None
    return signals(question, passages, with_pairs=config.max_size > 1, places=known)


def _questions(config: ValueTraining, source: EvidenceSource, encoder: TextEncoder) -> list[Pooled]:
    corpus = Corpus(DataFolder.open(Path(config.data) / source.data), encoder)
    queries = questions_of(corpus.folder, source)
    found = pools(corpus, source, queries)
    unit = Unit.parse(source.unit)
    if unit.size is None:
        return found
    by_id = {query.id: query for query in queries}
    return [of_units for one in found if (of_units := cut(one, by_id[one.id], corpus.folder, unit)) is not None]


def _fold(name: str, config: ValueTraining) -> int:
    return int(hashlib.sha256(f"{config.seed} {name}".encode()).hexdigest(), 16) % config.folds


def _fit_order(config: ValueTraining, training: Training) -> tuple[FloatArray, dict[str, float]]:
    """Fit the reading order, and measure it on a fold that another fit has not seen."""
    folds = [(_fold(pooled.id, config), table.example) for pooled, table in training if table.example.ordered]
    if not folds:
        return np.zeros(len(SINGLES) + len(PAIRS)), {}
    seen = fit_order([example for fold, example in folds if fold])
    return fit_order([example for _, example in folds]), order_accuracy([one for fold, one in folds if not fold], seen)


def _calibrated(
    config: ValueTraining, parts: EvidenceParts, training: Training, predicted: Sequence[Hypotheses]
) -> tuple[EvidenceParts, dict[str, float]]:
    """Fit temperature, slope and offset on questions that the networks in question have not seen, and measure them."""
    cases = [(pooled, table, found) for (pooled, table), found in zip(training, predicted, strict=True)]
    losses = [
        float(np.mean([_loss(found, pooled.golds, temperature) for pooled, _, found in cases]))
        for temperature in TEMPERATURES.tolist()
    ]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    # With slope 1 and offset 0 the logit of a value is the utility itself.
    plain = replace(parts.weights, temperature=temperature, slope=1.0, offset=0.0)
    utilities: list[FloatArray] = []
    judged: list[FloatArray] = []
    true = [found.sets[int(found.logits.argmax())] in (pooled.golds or [()]) for pooled, _, found in cases]
    for row, (pooled, table, found) in enumerate(cases):
        n = len(pooled.chunks)
        tokens = table.example.signals.singles[:, SINGLES.index("length")] * 128
        scorer = EvidenceScorer(found, tokens, np.zeros((n, n)), plain, np.zeros(n, dtype=bool))
        orders, complete = _met(scorer, pooled, config.seed + row)
        values = scorer(orders)
        utilities.append(np.log(values) - np.log1p(-values))
        judged.append(complete)
    x, right = np.concatenate(utilities), np.concatenate(judged)
    slope, offset = fit_sigmoid(x, right, start=(5.0, -3.0))
    weights = replace(plain, slope=round(slope, 4), offset=round(offset, 4), temperature=round(temperature, 4))
    return replace(parts, weights=weights), {
        "loss of the true hypothesis": round(min(losses), 4),
        "most probable hypothesis is true": round(float(np.mean(true)), 4),
        "calibration error": round(calibration_error(1 / (1 + np.exp(-(slope * x + offset))), right), 4),
        "temperature": weights.temperature,
        "slope": weights.slope,
        "offset": weights.offset,
    }


def _loss(found: Hypotheses, golds: tuple[tuple[int, ...], ...], temperature: float) -> float:
    # A set that is too weak to be among the hypotheses counts as one in a million.
    true = set(golds or [()])
    rows = [row for row, chosen in enumerate(found.sets) if chosen in true]
    return -float(np.log(max(found.probabilities(temperature)[rows].sum(), 1e-6)))


def _met(scorer: EvidenceScorer, pooled: Pooled, seed: int) -> tuple[list[Order], FloatArray]:
    """Return orders that searches meet, drawn at random, and whether each holds all of the evidence."""
    costs = [max(1, len(chunk.text) // 4) for chunk in pooled.chunks]  # about four characters a token in English
    orders: list[Order] = []
    for budget in BUDGETS:
        met: list[Order] = []

        def score(some: Sequence[Order], met: list[Order] = met) -> FloatArray:
            met.extend(some)
            return scorer(some)

        search.search(costs, score, budget, search.SearchConfig(policy="beam", iterations=100))
        chosen = np.random.default_rng(seed).permutation(len(met))[:ORDERS_MET]
        orders += [met[index] for index in sorted(chosen.tolist())]
    golds = [set(gold) for gold in pooled.golds]
    return orders, np.array([float(any(gold.issubset(order) for gold in golds)) for order in orders])
