"""Trains `minilm-reader`: low-rank updates of all layers of all-MiniLM-L6-v2, and a linear head for answer spans."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corag.errors import DataError
from corag.models.runtime import place
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.readers.minilm_reader import FORM, NAME, span_reader
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import KINDS, ReaderSettings, Reading, SpanReader, to_answer
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from corag.text.tokens import load_tokenizer, model_folder
from corag.types import FloatArray
from experiments.adapters.calibration import calibration_error, fit_sigmoid, separation
from experiments.adapters.reader.card import reader_card
from experiments.adapters.reader.config import ReaderTraining, RowSettings
from experiments.adapters.reader.data import Example, examples, sources_of
from experiments.adapters.reader.loop import learn
from experiments.adapters.reader.network import engine_of, export
from experiments.adapters.report import ADAPTER_DIR, AdapterReport, finished_report
from experiments.data.pools import drawn
from experiments.data.splits import held_out
from experiments.evaluation.metrics import exact_match, f1
from experiments.run.journal import fingerprint, write_atomically

logger = logging.getLogger(__name__)

DONE_FILE = "training.json"


class _Part(NamedTuple):
    """A source, with its held-out questions."""

    name: str
    folder: DataFolder
    held: list[Query]


def train_reader(config: ReaderTraining) -> AdapterReport:
    """Train the reader, measure it, and save its adapter with a model card.

    An interrupted training resumes at its last state; a finished one is not done again.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
        ModelError: The encoder, or the adapter in `init_from`, is missing or damaged.
    """
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    parts, learning = _read_sources(config)
    # A training may be made longer, so the work is what the weights depend on, but not the length.
    names = ("rows", "rank", "learning_rate", "warmup_steps", "weight_decay", "clip", "dropout", "kind_weight")
    more = ("average", "batch_tokens", "bf16", "processes", "seed", "init_from")
    shaping = {name: value for name, value in asdict(config).items() if name in names + more}
    work = fingerprint([shaping, [example.id for example in learning]])
    whole = fingerprint([work, config.epochs, config.decay, [asdict(test) for test in config.tests]])
    if (finished := finished_report(out, DONE_FILE, whole)) is not None:
        return finished
    adapter = out / ADAPTER_DIR
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    plain = ReaderSettings(window_tokens=config.window_tokens)
    checks = {part.name: gold_cases(part.folder, part.held[: config.validation]) for part in parts}
    if config.rows.sentences:
        made = {part.name: sentence_cases(part.folder, part.held[: config.validation], config.seed) for part in parts}
        checks |= {f"{name} by sentence": cases for name, cases in made.items()}

    def validate(network: SpanNetwork) -> dict[str, float]:
        network.eval()
        reader = SpanReader(engine_of(network, bf16=config.bf16), tokenizer, plain)
        figures = {name: _figures(read(reader, cases)[1]) for name, cases in checks.items() if cases}
        return {f"{name}_{metric}": found[metric] for name, found in figures.items() for metric in ("f1", "em")}

    network, progress = learn(config, learning, validate, work)
    tensors = {name: tensor.cpu().numpy().astype(np.float16) for name, tensor in export(network).items()}
    # What is measured is what is shipped: read back from its file, in its precision, run as users run it.
    save_adapter(adapter, tensors, _adapter_config(plain), "Not measured yet.\n")
    where = place("reader", backend=config.backend, precision="bf16" if config.bf16 else None)
    reader = span_reader(load_adapter(adapter, FORM), where)
    settings, figures = _measure(reader, parts, config)
    card = reader_card(config, progress, settings, figures, len(learning))
    save_adapter(adapter, tensors, _adapter_config(settings), card)
    done = {"work": whole, "figures": figures, "settings": asdict(settings), "progress": asdict(progress)}
    write_atomically(out / DONE_FILE, json.dumps(done, indent=2) + "\n")
    return AdapterReport(adapter, figures)


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
        raise DataError("no question of the sources has an answer that stands in its gold passages")
    return parts, learning


def _figures(scores: FloatArray) -> dict[str, float]:
    f1s, matches = scores.T
    return {"f1": round(100 * float(f1s.mean()), 2), "em": round(100 * float(matches.mean()), 2), "n": len(scores)}


def _measure(
    reader: SpanReader, parts: Sequence[_Part], config: ReaderTraining
) -> tuple[ReaderSettings, dict[str, dict[str, float]]]:
    """Return the reader's settings with its confidence fitted, and its figures."""
    figures: dict[str, dict[str, float]] = {}
    seen: list[tuple[float, float, bool]] = []
    for part in parts:
        groups = {
            f"{part.name}, held out": gold_cases(part.folder, part.held),
            "foreign": foreign_cases(part.folder, part.held, config.seed),
        }
        if config.rows.sentences:
            groups[f"{part.name}, held out, by sentence"] = sentence_cases(part.folder, part.held, config.seed)
            groups["lacking"] = sentence_cases(part.folder, part.held, config.seed, answered=False)
        for name, cases in groups.items():
            if not cases:
                continue
            readings, scores = read(reader, cases)
            if cases[0].answers:
                figures[name] = _figures(scores)
            seen += [
                (reading.margin, match, bool(case.answers))
                for case, reading, match in zip(cases, readings, scores[:, 1].tolist(), strict=True)
                if case.answers[:1] not in (("yes",), ("no",))
            ]
    for test in config.tests:
        folder = DataFolder.open(Path(config.data) / test.data)
        queries = drawn(folder.split(test.split), test.limit or None, config.seed)
        figures[f"{test.data}, {test.split}"] = _figures(read(reader, gold_cases(folder, queries))[1])
        if config.rows.sentences:
            cases = sentence_cases(folder, queries, config.seed)
            figures[f"{test.data}, {test.split}, by sentence"] = _figures(read(reader, cases)[1])
    margins, right, answerable = np.array(seen, dtype=np.float64).reshape(-1, 3).T.copy()
    settings, figures["calibration"] = _calibrated(reader.settings, margins, right, answerable.astype(bool))
    return settings, figures


def _calibrated(
    settings: ReaderSettings, margins: FloatArray, right: FloatArray, answerable: NDArray[np.bool_]
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
        if query.answers and query.gold and query.answers[0] != "maybe"
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


def sentence_cases(
    folder: DataFolder, queries: Sequence[Query], seed: int = 0, *, answered: bool = True
) -> list[ReadingCase]:
    """Return each question with sentences of its gold passages and of others; see `sentence_sources`.

    Questions whose answer does not stand in their gold passages are left out. Not `answered`: no sentence holds the
    answer.
    """
    cases = []
    for example in examples(folder, queries, 1):
        if example.kind != KINDS.index("span") or example.query is None:
            continue
        random = np.random.default_rng([seed, *example.id.encode()])
        sources = sources_of(example, RowSettings(), random, answered=answered)
        shown = [sources[place].text for place in random.permutation(len(sources)).tolist()]
        cases.append(
            ReadingCase(example.query.question, SEPARATOR.join(shown), example.query.answers if answered else ())
        )
    return cases


def _context(folder: DataFolder, names: Sequence[str]) -> str:
    return SEPARATOR.join(passage(folder.documents[name]).text for name in names if name in folder.documents)


def read(reader: SpanReader, cases: Sequence[ReadingCase]) -> tuple[list[Reading], FloatArray]:
    """Return the reading of each case, and its F1 and exact match as SQuAD 1.1 counts them, `[n, 2]`."""
    readings = reader.read([case.question for case in cases], [case.context for case in cases])
    scores = []
    for case, reading in zip(cases, readings, strict=True):
        said = to_answer(reading, case.context, reader.settings).text
        scores.append((f1(said, case.answers), exact_match(said, case.answers)))
    return readings, np.array(scores)
