"""Trains the adapters of the form `evidence-sets`: `minilm-multihop` and its kin."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
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
from corag.models.runtime import place
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.evidence.hypotheses import Hypotheses, weigh
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.parts import FORM, VOCABULARY, EvidenceParts
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.places import places
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.signals import (
    FLAGS,
    PAIRS,
    SINGLES,
    UNIT_PAIRS,
    UNIT_SINGLES,
    QuestionFeatures,
    Signals,
    read_question,
    signals,
)
from corag.rerankers.evidence.values import EvidenceScorer
from corag.text.data import DataFolder
from corag.text.documents import passage
from corag.text.units import Unit
from corag.types import Chunk, FloatArray, Order
from experiments.adapters.calibration import Reliability, fit_sigmoid, reliability
from experiments.adapters.evidence.card import evidence_card, reliability_figure
from experiments.adapters.evidence.config import EvidenceSource, EvidenceTraining
from experiments.adapters.evidence.figures import (
    Figures,
    met_orders,
    orders_per_second,
    ranking_figures,
    selection_figures,
)
from experiments.adapters.evidence.fit import (
    MEMBER_TENSORS,
    Example,
    Table,
    fit_member,
    fit_order,
    order_accuracy,
    standards,
    tabulate,
    to_ensemble,
)
from experiments.adapters.evidence.pools import Corpus, Pooled, pools, questions_of
from experiments.adapters.evidence.sentences import cut
from experiments.adapters.report import ADAPTER_DIR, AdapterReport, finished_report
from experiments.run.journal import fingerprint, write_atomically

MEMBERS_DIR, FIGURE_FILE, DONE_FILE = "members", "reliability.svg", "done.json"
TEMPERATURES = np.geomspace(0.5, 4.0, 43)
ORDERS_MET = 100
"""Orders of a question that the calibration looks at, for each budget."""

Training = Sequence[tuple[Pooled, Table]]
"""The training questions, as a whole and as the fit sees them."""


def train_evidence(config: EvidenceTraining) -> AdapterReport:
    """Train, calibrate, measure, and save the adapter with a model card.

    Token states and fitted networks are kept, so an interrupted training resumes; a finished one is not done again. A
    data folder that is missing or damaged, or has nothing to learn, is a `DataError`.
    """
    out = Path(config.out)
    settings = asdict(config)
    shaping = {name: settings[name] for name in settings if name not in ("out", "quiet", "states", "logger")}
    work = fingerprint(shaping | {"precision": place("embedder").precision})
    if (done := finished_report(out, DONE_FILE, work)) is not None:
        return done
    started = time.perf_counter()
    path = config.states or out / "states.sqlite"
    encoder = CachedEncoder(minilm_encoder(), batch=256, cache_mb=0, path=path)
    with open_logger(config.logger, out, settings) as tracker:
        rarity = _rarity(config, encoder)
        training = _training_questions(config, encoder, rarity)
        predicted, network = _fitted(config, training, tracker)
        order, order_found = _fit_order(config, training)
        parts = EvidenceParts(config.name, config.max_size, network, rarity, order, config.weights)
        parts, fitted = _calibrated(config, parts, training, predicted)
        described = {**parts.settings(), "sources": settings["sources"], "seed": config.seed}
        # What is measured is what is shipped: rounded to half precision.
        draft = out / "draft"
        save_adapter(draft, parts.tensors(), AdapterConfig(config.name, FORM, described), "")
        figures, reliabilities = _measured(config, EvidenceReranker(adapter=draft, encoder=encoder), encoder)
        facts: dict[str, Any] = {
            "questions": len({pooled.id for pooled, _ in training}),
            "without evidence": sum(not pooled.golds for pooled, _ in training),
            **{f"calibration: {name}": value for name, value in fitted.items()},
            **{f"reading order: {name}": value for name, value in order_found.items()},
            "hours": round((time.perf_counter() - started) / 3600, 2),
        }
        if tracker is not None:
            tracker.log_metrics(
                {
                    f"{test}/{method}/{name}": value
                    for test, methods in figures.items()
                    for method, values in methods.items()
                    for name, value in values.items()
                }
            )
    rounded, report = load_adapter(draft), AdapterReport(out / ADAPTER_DIR, figures)
    card = evidence_card(config, parts, facts, figures, reliabilities)
    save_adapter(report.adapter, rounded.tensors, rounded.config, card)
    write_atomically(out / FIGURE_FILE, reliability_figure(reliabilities))
    write_atomically(out / DONE_FILE, json.dumps({"work": work, "figures": figures, "facts": facts}, indent=2) + "\n")
    return report


def _fitted(config: EvidenceTraining, training: Training, tracker: Logger | None) -> tuple[list[Hypotheses], Ensemble]:
    """Return what networks that have not seen a question say about it, for each question, and the whole ensemble.

    A network that was fitted before comes from its file.
    """
    tables = [table for _, table in training]
    mean, scale = standards(tables)
    settings = asdict(config)
    # Other tests, or other weights of a value, need no other networks.
    names = ("data", "sources", "max_size", "fit", "folds", "seed")
    described = {name: settings[name] for name in names} | {"precision": place("embedder").precision}
    work = fingerprint([described, SINGLES, PAIRS, FLAGS, UNIT_SINGLES, UNIT_PAIRS])
    device = place("reranker").device

    def fit(name: str, rows: Sequence[int], seed: int) -> Ensemble:
        file = Path(config.out) / MEMBERS_DIR / work / f"{name}.safetensors"
        if file.is_file():
            return Ensemble.from_tensors(load_file(file))
        network, losses = fit_member([tables[row] for row in rows], mean, scale, config.fit, seed, device)
        if tracker is not None:
            for epoch, loss in enumerate(losses):
                tracker.log_metrics({f"{name}/loss": loss}, step=epoch)
        ensemble = to_ensemble([network], mean, scale)
        tensors = {part: np.ascontiguousarray(getattr(ensemble, part)) for part in Ensemble.__slots__}
        write_atomically(file, save(tensors))
        return ensemble

    folds = np.array([_fold(pooled.id, config) for pooled, _ in training])
    if len(set(folds.tolist())) == 1:
        raise DataError(
            f"the {len(folds)} questions to learn from all fall into one of {config.folds} folds; give more questions, "
            "or raise folds"
        )
    predicted: dict[int, Hypotheses] = {}
    members: list[Ensemble] = []
    with progress("fit", quiet=config.quiet) as told:
        total = config.folds + config.fit.members
        for fold in range(config.folds):
            network = fit(f"fold{fold}", np.flatnonzero(folds != fold).tolist(), config.seed)
            for row in np.flatnonzero(folds == fold).tolist():
                predicted[row] = weigh(tables[row].example.signals, config.max_size, network)
            told(fold + 1, total)
        for number in range(config.fit.members):
            members.append(fit(f"member{number}", range(len(training)), config.seed + number))
            told(config.folds + number + 1, total)
    own = {name: np.concatenate([getattr(one, name) for one in members]) for name in MEMBER_TENSORS}
    return [predicted[row] for row in range(len(training))], Ensemble(members[0].mean, members[0].scale, **own)


def _rarity(config: EvidenceTraining, encoder: TextEncoder) -> FloatArray:
    """Return how rare each token is in the passages of the sources (the inverse document frequency of BM25)."""
    holders, total = np.zeros(VOCABULARY), 0
    for name in dict.fromkeys(source.data for source in config.sources):
        documents = list(DataFolder.open(Path(config.data) / name).documents.values())
        for ids in encoder.tokenize([passage(document).text for document in documents]).ids:
            holders[np.unique(ids)] += 1
        total += len(documents)
    return np.log1p((total - holders + 0.5) / (holders + 0.5)).astype(np.float16).astype(np.float64)


def _training_questions(config: EvidenceTraining, encoder: TextEncoder, rarity: FloatArray) -> Training:
    found: list[tuple[Pooled, Table]] = []
    for source in config.sources:
        read = PassageReader(encoder)
        questions = _questions(config, source, encoder)
        with progress(f"describe {source.data}", quiet=config.quiet) as told:
            for number, pooled in enumerate(questions, start=1):
                question = read_question(encoder, pooled.question, rarity)
                example = Example(
                    f"{pooled.id} {len(pooled.chunks)}",
                    _signals(config, read, question, pooled.chunks),
                    pooled.golds,
                    pooled.ordered if source.data in config.order_sources and pooled.gold else (),
                    source.weight,
                )
                if (table := tabulate(example, config.max_size, config.fit)) is not None:
                    found.append((pooled, table))
                told(number, len(questions))
    if not any(table.num_true for _, table in found):
        raise DataError(f"no question of the sources has evidence of at most {config.max_size} passages")
    return found


def _signals(
    config: EvidenceTraining, read: PassageReader, question: QuestionFeatures, chunks: Sequence[Chunk]
) -> Signals:
    passages, sources = read.with_sources(chunks)
    known = places(question, chunks, passages, sources) if config.units else None
    return signals(question, passages, with_pairs=config.max_size > 1, places=known)


def _questions(config: EvidenceTraining, source: EvidenceSource, encoder: TextEncoder) -> list[Pooled]:
    corpus = Corpus(DataFolder.open(Path(config.data) / source.data), encoder)
    queries = questions_of(corpus.folder, source)
    found = pools(corpus, source, queries)
    unit = Unit.parse(source.unit)
    if unit.size is None:
        return found
    by_id = {query.id: query for query in queries}
    return [of_units for one in found if (of_units := cut(one, by_id[one.id], corpus.folder, unit)) is not None]


def _fold(name: str, config: EvidenceTraining) -> int:
    return int(fingerprint([config.seed, name]), 16) % config.folds


def _fit_order(config: EvidenceTraining, training: Training) -> tuple[FloatArray, dict[str, float]]:
    """Fit the reading order, and measure it on a fold that another fit has not seen."""
    folds = [(_fold(pooled.id, config), table.example) for pooled, table in training if table.example.ordered]
    if not folds:
        return np.zeros(len(SINGLES) + len(PAIRS)), {}
    seen = fit_order([example for fold, example in folds if fold])
    return fit_order([example for _, example in folds]), order_accuracy([one for fold, one in folds if not fold], seen)


def _calibrated(
    config: EvidenceTraining, parts: EvidenceParts, training: Training, predicted: Sequence[Hypotheses]
) -> tuple[EvidenceParts, dict[str, float]]:
    """Fit temperature, slope and offset on questions that the networks in question have not seen."""
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
    for row, (pooled, table, found) in enumerate(cases):
        n = len(pooled.chunks)
        tokens = table.example.signals.singles[:, SINGLES.index("length")] * 128
        scorer = EvidenceScorer(found, tokens, np.zeros((n, n)), plain, np.zeros(n, dtype=bool))
        orders, complete = _met(scorer, pooled, (256, 384), config.seed + row)
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


def _loss(found: Hypotheses, golds: tuple[tuple[int, ...], ...], temperature: float) -> float:
    # A set that is too weak to be among the hypotheses counts as one in a million.
    true = set(golds or [()])
    rows = [row for row, chosen in enumerate(found.sets) if chosen in true]
    return -float(np.log(max(found.probabilities(temperature)[rows].sum(), 1e-6)))


def _measured(
    config: EvidenceTraining, reranker: EvidenceReranker, encoder: TextEncoder
) -> tuple[dict[str, dict[str, Figures]], dict[str, Reliability]]:
    figures: dict[str, dict[str, Figures]] = {}
    reliabilities: dict[str, Reliability] = {}
    for test in config.tests:
        source = replace(test.source, unanswerable=0.0)
        questions = _questions(config, source, encoder)
        name = f"{source.data}, {source.split}" + (", held out" if source.part == "held-out" else "")
        name += "" if source.unit == "passage" else f", by {source.unit}"
        if test.kind == "ranking":
            figures[name] = ranking_figures(reranker, questions)
        else:
            for budget in test.budgets:
                figures[f"{name}, {budget} tokens"] = selection_figures(reranker, questions, budget, source.unit)
        # The calibration is judged on the first 300 questions of a test.
        scorers = [reranker.scorer(pooled.question, pooled.chunks) for pooled in questions[:300]]
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
    costs = [max(1, len(chunk.text) // 4) for chunk in pooled.chunks]  # about four characters a token in English
    orders = [order for budget in budgets for order in met_orders(scorer, costs, budget, ORDERS_MET, seed)]
    golds = [set(gold) for gold in pooled.golds]
    return orders, np.array([float(any(gold.issubset(order) for gold in golds)) for order in orders])
