"""Trains `minilm-reader`: low-rank updates of all layers of all-MiniLM-L6-v2, and a linear head for answer spans."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.readers.minilm_reader import FORM, NAME, span_reader
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import KINDS, ReaderSettings, Reading, SpanReader, to_answer
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from corag.text.tokens import load_tokenizer, model_folder
from experiments.adapters.calibration import calibration_error, fit_sigmoid, separation
from experiments.adapters.reader.card import reader_card
from experiments.adapters.reader.config import ReaderTraining
from experiments.adapters.reader.data import Example, examples
from experiments.adapters.reader.loop import learn
from experiments.adapters.reader.network import adapter_tensors, forward_of
from experiments.data.splits import held_out
from experiments.evaluation.metrics import exact_match, f1
from experiments.run.journal import fingerprint, finished_record, write_atomically

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

ADAPTER_DIR, DONE_FILE = "adapter", "training.json"


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """The adapter's folder, figures by set of questions, and the reader's settings with its calibration."""

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

    An interrupted training resumes at its last state; a finished one is not done again.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
        ModelError: The encoder, or the adapter in `init_from`, is missing or damaged.
    """
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    parts, learning = _read_sources(config)
    work = _fingerprint(config, learning)
    whole = fingerprint([work, config.epochs, config.decay, [asdict(test) for test in config.tests]])
    adapter = out / ADAPTER_DIR
    if (done := finished_record(out / DONE_FILE, whole)) is not None and adapter.is_dir():
        logger.info("%s is trained already; delete it to train again", adapter)
        return ReaderReport(adapter, done["figures"], ReaderSettings(**done["settings"]))
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    plain = ReaderSettings(window_tokens=config.window_tokens)
    checks = {part.name: gold_cases(part.folder, part.held[: config.validation]) for part in parts}

    def validate(network: SpanNetwork) -> dict[str, float]:
        network.eval()
        reader = SpanReader(forward_of(network, bf16=config.bf16), tokenizer, plain)
        figures = {name: _answers(reader, cases) for name, cases in checks.items() if cases}
        return {f"{name}_{metric}": found[metric] for name, found in figures.items() for metric in ("f1", "em")}

    network, progress = learn(config, learning, validate, work)
    tensors = adapter_tensors(network)
    # What is measured is what is shipped: read back from its file, in its precision, run as users run it.
    save_adapter(adapter, tensors, _adapter_config(plain), "Not measured yet.\n")
    reader = span_reader(load_adapter(adapter, FORM), config.backend, "bf16" if config.bf16 else "fp32")
    settings, figures = _measure(reader, parts, config)
    card = reader_card(config, progress, settings, figures, len(learning))
    save_adapter(adapter, tensors, _adapter_config(settings), card)
    report = ReaderReport(adapter, figures, settings)
    done = {"work": whole, "figures": figures, "settings": asdict(settings), "progress": asdict(progress)}
    write_atomically(out / DONE_FILE, json.dumps(done, indent=2) + "\n")
    return report


def _adapter_config(settings: ReaderSettings) -> AdapterConfig:
    return AdapterConfig(NAME, FORM, {**asdict(settings), "kinds": list(KINDS)})


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


def _answers(reader: SpanReader, cases: Sequence[ReadingCase]) -> dict[str, float]:
    return _means(*answer_scores(cases, read(reader, cases), reader.settings))


def _means(f1s: Floats, matches: Floats) -> dict[str, float]:
    return {"f1": round(100 * float(f1s.mean()), 2), "em": round(100 * float(matches.mean()), 2), "n": len(f1s)}


def _measure(
    reader: SpanReader, parts: Sequence[_Part], config: ReaderTraining
) -> tuple[ReaderSettings, dict[str, dict[str, float]]]:
    """Return the reader's settings with its confidence fitted, and its figures."""
    figures: dict[str, dict[str, float]] = {}
    margins: list[float] = []
    right: list[float] = []
    answerable: list[bool] = []
    for part in parts:
        for cases in (gold_cases(part.folder, part.held), foreign_cases(part.folder, part.held, config.seed)):
            if not cases:
                continue
            readings = read(reader, cases)
            f1s, matches = answer_scores(cases, readings, reader.settings)
            if cases[0].answers:
                figures[f"{part.name}, held out"] = _means(f1s, matches)
            for case, reading, match in zip(cases, readings, matches.tolist(), strict=True):
                if case.answers[:1] not in (("yes",), ("no",)):
                    margins.append(reading.margin)
                    right.append(match)
                    answerable.append(bool(case.answers))
    for test in config.tests:
        folder = DataFolder.open(Path(config.data) / test.data)
        cases = gold_cases(folder, _drawn(folder.split(test.split), test.limit, config.seed))
        figures[f"{test.data}, {test.split}"] = _answers(reader, cases)
    settings, figures["calibration"] = _calibrated(
        reader.settings, np.array(margins), np.array(right), np.array(answerable, dtype=bool)
    )
    return settings, figures


def _calibrated(
    settings: ReaderSettings, margins: Floats, right: Floats, answerable: NDArray[np.bool_]
) -> tuple[ReaderSettings, dict[str, float]]:
    """Fit the confidence of spans, in contexts with and without the answer.

    The error is measured on halves: each with the line that was fitted on the other.
    """
    half = np.arange(len(margins)) % 2 == 0
    if any(right[here].min(initial=1) == right[here].max(initial=0) for here in (half, ~half)):
        logger.warning("too few held-out questions to fit the confidence on; it is left as it is")
        return settings, {}
    confidence = np.zeros(len(margins))
    for here in (half, ~half):
        slope, offset = fit_sigmoid(margins[~here], right[~here])
        confidence[here] = 1 / (1 + np.exp(-(slope * margins[here] + offset)))
    slope, offset = fit_sigmoid(margins, right)
    found = {
        "questions": len(margins),
        "without answer": int((~answerable).sum()),
        "right": round(float(right.mean()), 4),
        "calibration error": round(calibration_error(confidence, right), 4),
        "separation": round(separation(margins[answerable], margins[~answerable]), 4),
    }
    return replace(settings, slope=round(slope, 4), offset=round(offset, 4)), found


def _drawn(queries: Sequence[Query], limit: int, seed: int) -> list[Query]:
    if not limit or limit >= len(queries):
        return list(queries)
    chosen = np.random.default_rng(seed).choice(len(queries), size=limit, replace=False)
    return [queries[index] for index in sorted(chosen.tolist())]


_LEFT_OUT = ("maybe",)


@dataclass(frozen=True, slots=True)
class ReadingCase:
    """A question with its context (passages joined as in a prompt) and the right answers, none if it has no answer."""

    question: str
    context: str
    answers: tuple[str, ...]


def gold_cases(folder: DataFolder, queries: Sequence[Query]) -> list[ReadingCase]:
    """Return each question with its gold passages; questions without gold or answer, and "maybe", are left out."""
    return [
        ReadingCase(query.question, _context(folder, query.gold), query.answers)
        for query in queries
        if query.answers and query.gold and query.answers[0] not in _LEFT_OUT
    ]


def foreign_cases(folder: DataFolder, queries: Sequence[Query], seed: int = 0) -> list[ReadingCase]:
    """Return each question with another question's gold passage, by the same title where there is one: no answer."""
    random = np.random.default_rng(seed)
    by_title: dict[str, list[str]] = {}
    golds = list(dict.fromkeys(gold for query in queries for gold in query.gold[:1]))
    for name in golds:
        by_title.setdefault(folder.documents[name].title, []).append(name)
    cases = []
    for query in queries:
        title = folder.documents[query.gold[0]].title if query.gold else ""
        others = [
            name
            for name in by_title.get(title, [])
            if name not in query.gold
            and not any(answer.lower() in folder.documents[name].text.lower() for answer in query.answers)
        ]
        if others:
            cases.append(ReadingCase(query.question, _context(folder, [others[int(random.integers(len(others)))]]), ()))
    return cases


def _context(folder: DataFolder, names: Sequence[str]) -> str:
    return SEPARATOR.join(passage(folder.documents[name]).text for name in names if name in folder.documents)


def read(reader: SpanReader, cases: Sequence[ReadingCase]) -> list[Reading]:
    """Return the reading of each case."""
    return reader.read([case.question for case in cases], [case.context for case in cases])


def answer_scores(
    cases: Sequence[ReadingCase], readings: Sequence[Reading], settings: ReaderSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return F1 and exact match of each case, `[n]` each, as SQuAD 1.1 counts them."""
    said = [to_answer(reading, case.context, settings).text for case, reading in zip(cases, readings, strict=True)]
    f1s = [f1(text, case.answers) for text, case in zip(said, cases, strict=True)]
    matches = [exact_match(text, case.answers) for text, case in zip(said, cases, strict=True)]
    return np.array(f1s), np.array(matches)
