"""Trains `minilm-reader`: low-rank updates of all layers of all-MiniLM-L6-v2, and a linear head; `corag train reader`.

The confidence of an answer is fitted on held-out questions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch.nn import functional

from corag.cli.page import Block
from corag.errors import DataError
from corag.models.minilm import load_bert
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.readers.minilm_reader import FORM, NAME, span_reader
from corag.readers.span_reader import END, KINDS, START, ReaderSettings, SpanReader, SpanReading, to_answer
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR, passage
from corag.types import FloatArray
from experiments.adapters.config import ReaderTraining
from experiments.adapters.encoder import INPUTS, EncoderModule, build, export, plain_name
from experiments.adapters.passages import calibrate
from experiments.adapters.reader_rows import ReadingExample, ReadingRow, batches, collate, examples, rows
from experiments.adapters.training import (
    Fit,
    Learned,
    calibration_error,
    facts_table,
    figures_table,
    fit_sigmoid,
    train_once,
)
from experiments.data.splits import held_out
from experiments.evaluation.metrics import exact_match, f1
from experiments.run.journal import fingerprint

ABOUT = """\
Answers a question from a context: with a span of it, or with yes or no. An adapter on all-MiniLM-L6-v2 (Apache-2.0):
low-rank updates of all its linear layers, its biases, layer norms and token types, and a linear head.
"""
USE = 'corag.reader("minilm-reader").answer("Who wrote it?", context)'
GOLD = """\
The gold passages are the context; the weights have the precision that is shipped. F1 and exact match as in SQuAD 1.1,
in percent. Held out: a share of the training questions, split between documents."""
READS = """\
The reader copies; it does not reason. It was trained on English Wikipedia and a few medical abstracts. Most of its
questions have one hop. If the context holds no answer, it still gives its best span, with low confidence, unless
`min_confidence` is set."""
LEAST_MARGIN = -30.0
"""Margin of a context without any span."""
WINDOW_TOKENS = 288
"""Tokens that the reader sees at once."""
logger = logging.getLogger(__name__)


KIND_WEIGHT = 0.3
"""Of the kind of answer (span, none, yes, no) in the loss."""
AVERAGE = 0.995
"""Decay of the running average of the weights, which is what is shipped."""


class ReadingCase(NamedTuple):
    """A question with its context (passages joined as in a prompt) and the right answers, none if it has no answer."""

    question: str
    context: str
    answers: tuple[str, ...]


HeldOut = dict[str, tuple[list[ReadingCase], list[ReadingCase]]]
"""Questions of each source that are not learned from: with their gold passages, and with one of another question."""


@in_runtime
def train_reader(config: ReaderTraining) -> Path:
    """Train, calibrate and measure the reader; see `train_once`. With `calibrate`, see `experiments.adapters.passages`.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
        ModelError: The encoder is missing or damaged.
    """
    if config.calibrate:
        return calibrate(config)
    checks, learning = _read_sources(config)
    work = fingerprint([config.work, [example.id for example in learning]])
    return train_once(config, work, partial(_learned, config, checks, learning), about=ABOUT, use=USE)


def _learned(config: ReaderTraining, checks: HeldOut, learning: Sequence[ReadingExample], fit: Fit) -> Learned:
    plain, draft = ReaderSettings(window_tokens=WINDOW_TOKENS), Path(config.out) / "draft"
    averaging = WeightAveraging(use_buffers=False, avg_fn=_average)
    network = ReaderModule(config, learning).learn(fit, resolve_device("reader").device, [averaging])
    tensors = {name: tensor.cpu().half().numpy() for name, tensor in export(network).items()}
    # What is measured is what is shipped: read back from its file, in its precision, run as users run it.
    save_adapter(draft, tensors, _adapter_config(plain), "")
    adapter = load_adapter(draft, FORM)
    settings, answers, calibration = _measure(span_reader(adapter, resolve_device("reader")), checks)
    facts = {
        "questions learned from": len(learning),
        "window": f"{settings.window_tokens} tokens, half over the next",
        "confidence": f"logistic function of {settings.slope} * margin + {settings.offset}",
    }
    results: list[Block] = [GOLD, figures_table(answers), facts_table(calibration), READS]
    figures = {**answers, "calibration": calibration}
    return Learned(replace(adapter, config=_adapter_config(settings)), figures, results, facts)


def _adapter_config(settings: ReaderSettings) -> AdapterConfig:
    return AdapterConfig(NAME, FORM, {**asdict(settings), "kinds": list(KINDS)})


def _read_sources(config: ReaderTraining) -> tuple[HeldOut, list[ReadingExample]]:
    checks: HeldOut = {}
    learning: list[ReadingExample] = []
    for source in config.sources:
        folder = DataFolder.open(Path(config.data) / source.data)
        queries = folder.split(source.split)
        out = held_out(folder, queries, source.held_out)
        asked = [query for query in queries if query.id in out]
        checks[source.data] = gold_cases(folder, asked), foreign_cases(folder, asked, config.seed)
        learning += examples(folder, [query for query in queries if query.id not in out], source.repeat)
    if not learning:
        raise DataError("no question of the sources has an answer that is in its gold passages")
    return checks, learning


class ReaderModule(EncoderModule):
    """The reader's network in training.

    Args:
        config: Of the training.
        learning: The questions.
    """

    def __init__(self, config: ReaderTraining, learning: Sequence[ReadingExample]) -> None:
        def batches_of(number: int) -> list[list[ReadingRow]]:
            seed = (config.seed, number)
            return batches(rows(learning, config, seed), config.step_tokens, (*seed, 1))

        super().__init__(config, build(load_bert(), config.rank, config.seed), batches_of)

    def training_step(self, batch: list[ReadingRow], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        tensors = {name: tensor.to(self.device) for name, tensor in collate(batch).items()}
        logits = self.network(**{name: tensors[name] for name in INPUTS})[0]
        losses = loss_of(logits.float(), tensors)
        self.log_dict(losses, batch_size=len(batch))
        return losses["loss"]

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave out a step whose gradient is not finite: clipped, it would make all weights so."""
        trained = [value for value in self.parameters() if value.grad is not None]
        if not all(bool(value.grad.isfinite().all()) for value in trained):
            for value in trained:
                value.grad = None

    def groups(self) -> list[dict[str, Any]]:
        """Return matrices, which decay, and biases, norms and the one embedding, which do not."""
        decayed: list[torch.nn.Parameter] = []
        others: list[torch.nn.Parameter] = []
        for name, value in self.named_parameters():
            if value.requires_grad:
                is_matrix = plain_name(name).endswith((".down", ".up", "head.weight"))
                (decayed if is_matrix else others).append(value)
        return [{"params": decayed}, {"params": others, "weight_decay": 0.0}]


def _average(mean: torch.Tensor, value: torch.Tensor, number: Any) -> torch.Tensor:
    # The past weighs less at first, so that the first steps do not linger.
    decay = min(AVERAGE, (1 + int(number)) / (10 + int(number)))
    return mean.lerp(value, 1.0 - decay)


def loss_of(logits: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the loss, `loss`, and its parts, `span` and `kind`.

    Start and end are cross-entropies over the context and [CLS], which stands for "no answer here". Where several spans
    are right, their joint probability counts. Rows of yes and no have no span. Logits are fp32, `[B, L, NUM_OUTPUTS]`.
    """
    losses = []
    for column, right in ((START, batch["starts"]), (END, batch["ends"])):
        known = right.any(dim=1)
        allowed = logits[..., column].masked_fill(~batch["context"], -torch.inf)
        hit = logits[..., column].masked_fill(~right, -torch.inf)
        difference = torch.logsumexp(allowed[known], 1) - torch.logsumexp(hit[known], 1)
        losses.append(difference.sum() / len(right))
    kind = functional.cross_entropy(logits[:, 0, 2:], batch["kinds"])
    span = (losses[0] + losses[1]) / 2
    return {"loss": span + KIND_WEIGHT * kind, "span": span, "kind": kind}


def gold_cases(folder: DataFolder, queries: Sequence[Query]) -> list[ReadingCase]:
    """Return each question with its gold passages; questions without gold or answer, and "maybe", are left out."""
    return [
        ReadingCase(query.question, _context(folder, query.gold), query.answers)
        for query in queries
        if query.answers and query.gold and query.answers[0] != "maybe"
    ]


def foreign_cases(folder: DataFolder, queries: Sequence[Query], seed: int = 0) -> list[ReadingCase]:
    """Return each question with another question's gold passage, by the same title if there is any: no answer."""
    random = np.random.default_rng(seed)
    by_title: dict[str, list[str]] = {}
    for name in dict.fromkeys(gold for query in queries for gold in query.gold[:1]):
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
            chosen = others[int(random.integers(len(others)))]
            cases.append(ReadingCase(query.question, _context(folder, [chosen]), ()))
    return cases


def _context(folder: DataFolder, names: Sequence[str]) -> str:
    return SEPARATOR.join(passage(folder.documents[name]).text for name in names if name in folder.documents)


def read(reader: SpanReader, cases: Sequence[ReadingCase]) -> tuple[list[SpanReading], FloatArray]:
    """Return the reading of each case, and its F1 and exact match as SQuAD 1.1 counts them, `[n, 2]`."""
    readings = reader.read([case.question for case in cases], [case.context for case in cases])
    scores = []
    for case, reading in zip(cases, readings, strict=True):
        answer = to_answer(reading, case.context, reader.settings).text
        scores.append((f1(answer, case.answers), exact_match(answer, case.answers)))
    return readings, np.array(scores)


def _figures(scores: FloatArray) -> dict[str, float]:
    f1s, matches = scores.T
    return {"f1": round(100 * float(f1s.mean()), 2), "em": round(100 * float(matches.mean()), 2), "n": len(scores)}


def _measure(
    reader: SpanReader, checks: HeldOut
) -> tuple[ReaderSettings, dict[str, dict[str, float]], dict[str, float]]:
    """Return the reader's settings with its confidence fitted, its figures, and those of the confidence."""
    figures: dict[str, dict[str, float]] = {}
    seen: list[tuple[float, float, bool]] = []  # margin, whether it is right, whether there is an answer
    for name, (gold, foreign) in checks.items():
        for cases in filter(None, (gold, foreign)):
            readings, scores = read(reader, cases)
            if cases is gold:
                figures[f"{name}, held out"] = _figures(scores)
            seen += [
                (max(reading.margin, LEAST_MARGIN), right, bool(case.answers))
                for case, reading, right in zip(cases, readings, scores[:, 1].tolist(), strict=True)
                if case.answers[:1] not in (("yes",), ("no",))
            ]
    settings, calibration = _calibrated(reader.settings, *np.array(seen, dtype=np.float64).reshape(-1, 3).T)
    return settings, figures, calibration


def _calibrated(
    settings: ReaderSettings, margins: FloatArray, right: FloatArray, has_answer: FloatArray
) -> tuple[ReaderSettings, dict[str, float]]:
    """Fit the confidence of spans, in contexts with and without the answer.

    The error is measured on halves: each with the line that was fitted on the other.
    """
    from sklearn.metrics import roc_auc_score

    half = np.arange(len(margins)) % 2 == 0
    if any(right[here].min(initial=1) == right[here].max(initial=0) for here in (half, ~half)):
        logger.warning("too few held-out questions to fit the confidence on; it is left as it is")
        return settings, {}
    confidence = np.zeros(len(margins))
    for here in (half, ~half):
        slope, offset = fit_sigmoid(margins[~here], right[~here])
        confidence[here] = 1 / (1 + np.exp(-(slope * margins[here] + offset)))
    slope, offset = fit_sigmoid(margins, right)
    figures = {
        "questions": len(margins),
        "without answer": int((has_answer == 0).sum()),
        "right": round(float(right.mean()), 4),
        "calibration error": round(calibration_error(confidence, right), 4),
        # How often a question with an answer has the larger margin than one without: the area under the ROC curve.
        "separation": float("nan") if has_answer.all() else round(float(roc_auc_score(has_answer, margins)), 4),
    }
    return replace(settings, slope=round(slope, 4), offset=round(offset, 4)), figures
