"""Trains `minilm-multihop`, `minilm-factoid` and `minilm-longform`: adapters of the form `evidence-sets`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import Logger
from safetensors.numpy import load_file, save

from agent.training.loggers import open_logger
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.cached import CachedEncoder
from corag.models.minilm import TextEncoder, minilm_encoder
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.evidence.hypotheses import Hypotheses, weigh
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.parts import FORM, VOCABULARY, EvidenceParts
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.signals import FLAGS, PAIRS, SINGLES, read_question, signals
from corag.rerankers.evidence.values import EvidenceScorer, Weights
from corag.text.documents import passage
from corag.types import FloatArray, Order
from experiments.adapters.calibration import Reliability, fit_sigmoid, reliability
from experiments.adapters.evidence.card import evidence_card, reliability_figure
from experiments.adapters.evidence.config import EvidenceTraining
from experiments.adapters.evidence.figures import (
    Figures,
    met_orders,
    orders_per_second,
    ranking_figures,
    selection_figures,
)
from experiments.adapters.evidence.fit import (
    Example,
    Table,
    fit_member,
    fit_order,
    order_accuracy,
    standards,
    tabulate,
    to_ensemble,
)
from experiments.adapters.evidence.pools import Pooled, open_corpus, pools, questions_of
from experiments.run.journal import fingerprint, finished_record, write_atomically

logger = logging.getLogger(__name__)

ADAPTER_DIR, MEMBERS_DIR, FIGURE_FILE, DONE_FILE = "adapter", "members", "reliability.svg", "done.json"
TEMPERATURES = np.geomspace(0.5, 4.0, 43)
BUDGETS = (256, 384)
ORDERS_MET = 100
"""Orders of a question that the calibration looks at, for each budget."""
MOST_JUDGED = 300
"""Questions of a test on which the calibration is judged."""
CHARACTERS_PER_TOKEN = 4
"""Roughly, in English."""


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """The adapter's folder, and the figures of each test by method."""

    adapter: Path
    figures: Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class _TrainingQuestion:
    """A training question, as a whole and as the fit sees it."""

    pooled: Pooled
    example: Example
    table: Table


def train_evidence(config: EvidenceTraining) -> EvidenceReport:
    """Train, calibrate, measure, and save the adapter with a model card.

    Token states and fitted networks are kept, so an interrupted training resumes; a finished one is not done again. A
    data folder that is missing or damaged, or has nothing to learn, is a `DataError`.
    """
    out = Path(config.out)
    settings = asdict(config)
    work = fingerprint({name: settings[name] for name in settings if name not in ("out", "quiet", "states", "logger")})
    adapter = out / ADAPTER_DIR
    if (done := finished_record(out / DONE_FILE, work)) is not None and adapter.is_dir():
        logger.info("%s is trained already; delete it to train again", adapter)
        return EvidenceReport(adapter, done["figures"])
    started = time.perf_counter()
    path = config.states or out / "states.sqlite"
    encoder = CachedEncoder(minilm_encoder(precision=config.precision), batch=256, cache_mb=0, path=path)
    with open_logger(config.logger, out, settings) as tracker:
        rarity = _rarity(config, encoder)
        training = _training_questions(config, encoder, rarity)
        predicted, network = _fitted(config, training, _Fits(config, [one.table for one in training], tracker))
        order, order_found = _fit_order(config, training)
        parts = EvidenceParts(config.name, config.max_size, network, rarity, order, config.weights)
        parts, fitted = _calibrated(config, parts, training, predicted)
        described = {**parts.settings(), "sources": settings["sources"], "seed": config.seed}
        # What is measured is what is shipped: rounded to half precision.
        draft = out / "draft"
        save_adapter(draft, parts.tensors(), AdapterConfig(config.name, FORM, described), "")
        figures, reliabilities = _measured(config, EvidenceReranker(adapter=draft, encoder=encoder), encoder)
        facts: dict[str, Any] = {
            "questions": len({one.pooled.id for one in training}),
            "without evidence": sum(not one.pooled.gold for one in training),
            **{f"calibration: {name}": value for name, value in fitted.items()},
            **{f"reading order: {name}": value for name, value in order_found.items()},
            "hours": round((time.perf_counter() - started) / 3600, 2),
        }
        if tracker is not None:
            tracker.log_metrics(_flat(figures))
    rounded = load_adapter(draft)
    card = evidence_card(config, parts, facts, figures, reliabilities)
    save_adapter(adapter, rounded.tensors, rounded.config, card)
    write_atomically(out / FIGURE_FILE, reliability_figure(reliabilities))
    write_atomically(out / DONE_FILE, json.dumps({"work": work, "figures": figures, "facts": facts}, indent=2) + "\n")
    return EvidenceReport(adapter, figures)


class _Fits:
    """Fits networks to parts of the training questions, or takes them from their files if that was done before."""

    def __init__(self, config: EvidenceTraining, tables: Sequence[Table], tracker: Logger | None) -> None:
        self._config, self._tables, self._tracker = config, tables, tracker
        self._mean, self._scale = standards(tables)
        settings = asdict(config)
        # Other tests, or other weights of a value, need no other networks.
        names = ("data", "sources", "max_size", "fit", "folds", "precision", "seed")
        work = fingerprint([{name: settings[name] for name in names}, SINGLES, PAIRS, FLAGS])
        self._folder = Path(config.out) / MEMBERS_DIR / work

    def __call__(self, name: str, rows: Sequence[int], seed: int) -> Ensemble:
        """Return one network, fitted to the questions of these rows."""
        file = self._folder / f"{name}.safetensors"
        if file.is_file():
            return Ensemble.from_tensors(load_file(file))
        tables = [self._tables[row] for row in rows]
        network, losses = fit_member(tables, self._mean, self._scale, self._config.fit, seed)
        if self._tracker is not None:
            for epoch, loss in enumerate(losses):
                self._tracker.log_metrics({f"{name}/loss": loss}, step=epoch)
        ensemble = to_ensemble([network], self._mean, self._scale)
        write_atomically(
            file, save({name: np.ascontiguousarray(getattr(ensemble, name)) for name in Ensemble.__slots__})
        )
        return ensemble


def _fitted(
    config: EvidenceTraining, training: Sequence[_TrainingQuestion], fit: _Fits
) -> tuple[list[Hypotheses], Ensemble]:
    """Return what networks that have not seen a question say about it, for each question, and the whole ensemble."""
    folds = np.array([_fold(one.pooled.id, config) for one in training])
    predicted: dict[int, Hypotheses] = {}
    members: list[Ensemble] = []
    with progress("fit", quiet=config.quiet) as told:
        total = config.folds + config.fit.members
        for fold in range(config.folds):
            network = fit(f"fold{fold}", np.flatnonzero(folds != fold).tolist(), config.seed)
            for row in np.flatnonzero(folds == fold).tolist():
                predicted[row] = weigh(training[row].example.signals, config.max_size, network)
            told(fold + 1, total)
        for number in range(config.fit.members):
            members.append(fit(f"member{number}", range(len(training)), config.seed + number))
            told(config.folds + number + 1, total)
    return [predicted[row] for row in range(len(training))], _joined(members)


def _flat(figures: Mapping[str, Mapping[str, Figures]]) -> dict[str, float]:
    return {
        f"{test}/{method}/{name}": value
        for test, methods in figures.items()
        for method, values in methods.items()
        for name, value in values.items()
    }


def _rarity(config: EvidenceTraining, encoder: TextEncoder) -> FloatArray:
    """Return how rare each token is in the passages of the sources (the inverse document frequency of BM25)."""
    holders, total = np.zeros(VOCABULARY), 0
    for name in dict.fromkeys(source.data for source in config.sources):
        documents = list(open_corpus(config.data, name, encoder).folder.documents.values())
        for ids in encoder.tokenize([passage(document).text for document in documents]).ids:
            holders[np.unique(ids)] += 1
        total += len(documents)
    return np.log1p((total - holders + 0.5) / (holders + 0.5)).astype(np.float16).astype(np.float64)


def _training_questions(config: EvidenceTraining, encoder: TextEncoder, rarity: FloatArray) -> list[_TrainingQuestion]:
    """Describe all training questions."""
    found: list[_TrainingQuestion] = []
    for source in config.sources:
        corpus = open_corpus(config.data, source.data, encoder)
        questions = pools(corpus, source, questions_of(corpus.folder, source))
        read = PassageReader(encoder)
        with progress(f"describe {source.data}", quiet=config.quiet) as told:
            for number, pooled in enumerate(questions):
                question = read_question(encoder, pooled.question, rarity)
                passages = read([chunk.text for chunk in pooled.chunks])
                ordered = pooled.ordered if source.data in config.order_sources and pooled.gold else ()
                example = Example(
                    f"{pooled.id} {len(pooled.chunks)}",
                    signals(question, passages, with_pairs=config.max_size > 1),
                    pooled.gold,
                    ordered,
                    source.weight,
                )
                if (table := tabulate(example, config.max_size, config.fit)) is not None:
                    found.append(_TrainingQuestion(pooled, example, table))
                told(number + 1, len(questions))
    if not any(one.table.answerable for one in found):
        raise DataError(f"no question of the sources has evidence of at most {config.max_size} passages")
    return found


def _fold(name: str, config: EvidenceTraining) -> int:
    return int(fingerprint([config.seed, name]), 16) % config.folds


def _joined(members: Sequence[Ensemble]) -> Ensemble:
    """Return one ensemble of networks that share their standards."""
    shared = {name: getattr(members[0], name) for name in ("mean", "scale")}
    own = ("linear", "bias", "hidden", "hidden_bias", "output")
    return Ensemble(**shared, **{name: np.concatenate([getattr(one, name) for one in members]) for name in own})


def _fit_order(config: EvidenceTraining, training: Sequence[_TrainingQuestion]) -> tuple[FloatArray, dict[str, float]]:
    """Fit the reading order, and measure it on a fold that another fit has not seen."""
    examples = [one.example for one in training if one.example.ordered]
    seen = [one.example for one in training if one.example.ordered and _fold(one.pooled.id, config)]
    unseen = [one.example for one in training if one.example.ordered and not _fold(one.pooled.id, config)]
    if not examples:
        return np.zeros(len(SINGLES) + len(PAIRS)), {}
    return fit_order(examples), order_accuracy(unseen, fit_order(seen))


def _calibrated(
    config: EvidenceTraining,
    parts: EvidenceParts,
    training: Sequence[_TrainingQuestion],
    predicted: Sequence[Hypotheses],
) -> tuple[EvidenceParts, dict[str, float]]:
    """Fit temperature, slope and offset on questions that the networks in question have not seen."""
    losses = [
        float(
            np.mean(
                [_loss(found, one.pooled.gold, temperature) for one, found in zip(training, predicted, strict=True)]
            )
        )
        for temperature in TEMPERATURES.tolist()
    ]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    # With slope 1 and offset 0 the logit of a value is the utility itself.
    plain = replace(parts.weights, temperature=temperature, slope=1.0, offset=0.0)
    utilities: list[FloatArray] = []
    judged: list[FloatArray] = []
    for row, (one, found) in enumerate(zip(training, predicted, strict=True)):
        scorer = _scorer(one, found, plain)
        orders, complete = _met(scorer, one.pooled, BUDGETS, config.seed + row)
        values = scorer(orders)
        utilities.append(np.log(values) - np.log1p(-values))
        judged.append(complete)
    slope, offset = fit_sigmoid(np.concatenate(utilities), np.concatenate(judged), start=(5.0, -3.0))
    weights = replace(plain, slope=round(slope, 4), offset=round(offset, 4), temperature=round(temperature, 4))
    return replace(parts, weights=weights), {
        "loss of the true hypothesis": round(min(losses), 4),
        "temperature": weights.temperature,
        "slope": weights.slope,
        "offset": weights.offset,
    }


def _loss(found: Hypotheses, gold: tuple[int, ...], temperature: float) -> float:
    # A set that is too weak to be among the hypotheses counts as one in a million.
    probabilities = found.probabilities(temperature)
    return -float(np.log(max(probabilities[found.sets.index(gold)] if gold in found.sets else 0.0, 1e-6)))


def _scorer(one: _TrainingQuestion, found: Hypotheses, weights: Weights) -> EvidenceScorer:
    n = len(one.pooled.chunks)
    tokens = one.example.signals.singles[:, SINGLES.index("length")] * 128
    return EvidenceScorer(found, tokens, np.zeros((n, n)), weights, np.zeros(n, dtype=bool))


def _measured(
    config: EvidenceTraining, reranker: EvidenceReranker, encoder: TextEncoder
) -> tuple[dict[str, dict[str, Figures]], dict[str, Reliability]]:
    figures: dict[str, dict[str, Figures]] = {}
    reliabilities: dict[str, Reliability] = {}
    for test in config.tests:
        source = replace(test.source, unanswerable=0.0)
        corpus = open_corpus(config.data, source.data, encoder)
        questions = pools(corpus, source, questions_of(corpus.folder, source))
        name = f"{source.data}, {source.split}" + (", held out" if source.part == "held-out" else "")
        if test.kind == "ranking":
            figures[name] = ranking_figures(reranker, questions)
        else:
            for budget in test.budgets:
                figures[f"{name}, {budget} tokens"] = selection_figures(reranker, questions, budget)
        scorers = [reranker.scorer(pooled.question, pooled.chunks) for pooled in questions[:MOST_JUDGED]]
        met = [
            _met(scorer, pooled, test.budgets, config.seed + row)
            for row, (scorer, pooled) in enumerate(zip(scorers, questions, strict=False))
        ]
        values = [scorer(orders) for scorer, (orders, _) in zip(scorers, met, strict=True)]
        reliabilities[name] = reliability(np.concatenate(values), np.concatenate([complete for _, complete in met]))
        speed = orders_per_second(scorers[0], len(questions[0].chunks))
        figures[f"{name}, speed"] = {reranker.name: {"orders per second": speed}}
    return figures, reliabilities


def _met(scorer: EvidenceScorer, pooled: Pooled, budgets: Sequence[int], seed: int) -> tuple[list[Order], FloatArray]:
    """Return orders that searches meet, and whether each holds all of the evidence."""
    costs = [max(1, len(chunk.text) // CHARACTERS_PER_TOKEN) for chunk in pooled.chunks]
    orders = [order for budget in budgets for order in met_orders(scorer, costs, budget, ORDERS_MET, seed)]
    gold = set(pooled.gold)
    return orders, np.array([float(bool(gold) and gold.issubset(order)) for order in orders])
