"""Trains `minilm-reader`: low-rank updates of all layers of all-MiniLM-L6-v2, and a linear head for answer spans."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from agent.files import replace_atomically
from corag.adapters import AdapterConfig, save_adapter
from corag.data import DataFolder, Query
from corag.errors import DataError
from corag.minilm import model_folder
from corag.readers.minilm_reader import FORM, NAME
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import ReaderSettings, SpanReader
from corag.readers.spans import KINDS
from corag.tokens import load_tokenizer
from experiments.adapters.holdout import held_out
from experiments.adapters.reader_card import reader_card
from experiments.adapters.reader_config import ReaderTraining
from experiments.adapters.reader_data import Example, examples
from experiments.adapters.reader_figures import (
    Task,
    answer_scores,
    calibrate,
    calibration_error,
    foreign_tasks,
    gold_tasks,
    read,
    separation,
)
from experiments.adapters.reader_loop import learn
from experiments.adapters.reader_network import adapter_tensors, forward_of
from experiments.journal import fingerprint

logger = logging.getLogger(__name__)

ADAPTER_DIR, DONE_FILE = "adapter", "training.json"


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """What a training gave.

    Attributes:
        adapter: The adapter's folder.
        figures: Per set of questions its figures.
        settings: How the reader reads, calibration included.
    """

    adapter: Path
    figures: Mapping[str, Mapping[str, float]]
    settings: ReaderSettings


@dataclass(frozen=True, slots=True)
class _Part:
    """A source, read."""

    name: str
    folder: DataFolder
    held: list[Query]


def train_reader(config: ReaderTraining) -> ReaderReport:
    """Train the reader, measure it, and save its adapter with a model card.

    A training that was stopped goes on where its last state was saved; one that is finished is not done again.

    Raises:
        DataError: A data folder is missing or damaged, or nothing in it can be learned.
        ModelError: The encoder, or the adapter to go on from, is missing or damaged.
    """
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    parts, learning = _read_sources(config)
    work = _fingerprint(config, learning)
    whole = fingerprint([work, config.epochs, config.decay, [asdict(test) for test in config.tests]])
    if (found := _finished(out, whole)) is not None:
        logger.info("%s is trained already; delete it to train again", out / ADAPTER_DIR)
        return found
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    plain = ReaderSettings(window_tokens=config.window_tokens)
    checks = {part.name: gold_tasks(part.folder, part.held[: config.validation]) for part in parts}

    def validate(network: SpanNetwork) -> dict[str, float]:
        network.eval()
        reader = SpanReader(forward_of(network, bf16=config.bf16), tokenizer, plain)
        figures = {name: _answers(reader, tasks) for name, tasks in checks.items() if tasks}
        return {f"{name}_{metric}": value for name, found in figures.items() for metric, value in found.items()}

    network, standing = learn(config, learning, validate, work)
    tensors = adapter_tensors(network)
    _round(network)
    reader = SpanReader(forward_of(network.eval(), bf16=config.bf16), tokenizer, plain)
    figures = {
        f"{part.name}, held out": _answers(reader, gold_tasks(part.folder, part.held)) for part in parts if part.held
    }
    for test in config.tests:
        folder = DataFolder.open(Path(config.data) / test.data)
        queries = _drawn(folder.split(test.split), test.limit, config.seed)
        figures[f"{test.data}, {test.split}"] = _answers(reader, gold_tasks(folder, queries))
    settings, figures["calibration"] = _calibrated(reader, parts, config)
    adapter = AdapterConfig(NAME, FORM, {**asdict(settings), "kinds": list(KINDS)})
    card = reader_card(config, standing, settings, figures, len(learning))
    save_adapter(out / ADAPTER_DIR, tensors, adapter, card)
    report = ReaderReport(out / ADAPTER_DIR, figures, settings)
    done = {"work": whole, "figures": figures, "settings": asdict(settings), "standing": asdict(standing)}
    replace_atomically(out / DONE_FILE, (json.dumps(done, indent=2) + "\n").encode())
    return report


def _read_sources(config: ReaderTraining) -> tuple[list[_Part], list[Example]]:
    parts: list[_Part] = []
    learning: list[Example] = []
    for source in config.sources:
        folder = DataFolder.open(Path(config.data) / source.data)
        queries = folder.split(source.split)
        out = held_out(folder, queries, source.held_out)
        parts.append(_Part(source.data, folder, [query for query in queries if query.id in out]))
        learning += examples(folder, [query for query in queries if query.id not in out], source.repeat)
    if not learning:
        raise DataError(f"{config.data}: no question of the sources has an answer that stands in its gold passages")
    return parts, learning


def _fingerprint(config: ReaderTraining, learning: Sequence[Example]) -> str:
    """Return a hash of what the weights depend on; a training may be made longer, so not of its length."""
    names = ("rows", "rank", "learning_rate", "warmup_steps", "weight_decay", "clip", "dropout", "kind_weight")
    more = ("average", "batch_tokens", "bf16", "processes", "seed", "init_from")
    settings = asdict(config)
    return fingerprint([{name: settings[name] for name in names + more}, [example.id for example in learning]])


def _finished(out: Path, work: str) -> ReaderReport | None:
    """Return the report of this very training if it was finished in `out`."""
    try:
        done = json.loads((out / DONE_FILE).read_text(encoding="utf-8"))
        if done["work"] != work or not (out / ADAPTER_DIR).is_dir():
            return None
        return ReaderReport(out / ADAPTER_DIR, done["figures"], ReaderSettings(**done["settings"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _round(network: SpanNetwork) -> None:
    """Round what was trained as the adapter's file does, so that what is measured is what is shipped."""
    with torch.no_grad():
        for value in network.parameters():
            if value.requires_grad:
                value.copy_(value.half().float())


def _answers(reader: SpanReader, tasks: Sequence[Task]) -> dict[str, float]:
    f1s, matches = answer_scores(tasks, read(reader, tasks), reader.settings)
    return {"f1": round(100 * float(f1s.mean()), 2), "em": round(100 * float(matches.mean()), 2)}


def _calibrated(
    reader: SpanReader, parts: Sequence[_Part], config: ReaderTraining
) -> tuple[ReaderSettings, dict[str, float]]:
    """Fit the confidence on held-out questions, as many with an answer in their context as can be had without one.

    The error is measured on halves: each with the line that was fitted on the other.
    """
    plain = replace(reader.settings, slope=1.0, offset=0.0)
    margins: list[float] = []
    right: list[float] = []
    answerable: list[bool] = []
    for part in parts:
        for tasks in (gold_tasks(part.folder, part.held), foreign_tasks(part.folder, part.held, config.seed)):
            spans = [task for task in tasks if not task.answers or task.answers[0] not in ("yes", "no")]
            readings = read(reader, spans)
            margins += [reading.margin for reading in readings]
            right += answer_scores(spans, readings, plain)[1].tolist()
            answerable += [bool(task.answers) for task in spans]
    values, targets, known = np.array(margins), np.array(right), np.array(answerable)
    if not 0 < targets.sum() < len(targets):
        logger.warning("too few held-out questions to fit the confidence on; it is left as it is")
        return plain, {}
    half = np.arange(len(values)) % 2 == 0
    confidence = np.zeros(len(values))
    for here in (half, ~half):
        slope, offset = calibrate(values[~here], targets[~here])
        confidence[here] = 1 / (1 + np.exp(-(slope * values[here] + offset)))
    slope, offset = calibrate(values, targets)
    found = {
        "questions": len(values),
        "without answer": int((~known).sum()),
        "right": round(float(targets.mean()), 4),
        "calibration error": round(calibration_error(confidence, targets), 4),
        "separation": round(separation(values[known], values[~known]), 4) if not known.all() else 0.0,
    }
    return replace(plain, slope=round(slope, 4), offset=round(offset, 4)), found


def _drawn(queries: Sequence[Query], limit: int, seed: int) -> list[Query]:
    if not limit or limit >= len(queries):
        return list(queries)
    chosen = np.random.default_rng(seed).choice(len(queries), size=limit, replace=False)
    return [queries[index] for index in sorted(chosen.tolist())]
