"""Trains `minilm-cross`: low-rank updates of all layers of all-MiniLM-L6-v2 and one output; `corag train cross`.

It starts from the reader, which attends from question to context already and whose head tells whether an answer is
there. It learns from combinations of a question's candidates: which are enough to answer, which of two holds more of
the evidence, and which order of the same chunks is the one in which the data tells the evidence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.nn import functional

from corag.errors import DataError
from corag.models.cached import CachedEncoder
from corag.models.engine import Int64, pad
from corag.models.minilm import TextEncoder, load_bert, minilm_encoder
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import AdapterConfig, load_adapter, save_adapter, shipped_adapter
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import KINDS
from corag.rerankers.minilm_cross import FORM, NAME, NUM_SPECIAL, WINDOW_TOKENS, MiniLMCross, framed
from corag.types import FloatArray, Order
from experiments.adapters.calibration import calibration_error, fit_sigmoid
from experiments.adapters.card import adapter_card
from experiments.adapters.config import CrossTraining
from experiments.adapters.pools import Corpus, Pooled, open_folder, questions_by_unit
from experiments.adapters.reader_fit import INPUTS, build, export, learning_rate
from experiments.adapters.training import AdapterReport, Epoch, finished_report, fit, ship
from experiments.report.page import Block, Table
from experiments.run.journal import fingerprint
from experiments.run.track import UNMEASURED

ABOUT = """\
Reads a question and the joined text of ordered chunks in one pass and gives the probability that they are enough to
answer. All layers of all-MiniLM-L6-v2 (Apache-2.0) with low-rank updates, and one linear output. The training starts
from the reader that ships, and learns which combinations are enough, which of two holds more of the evidence, and which
order of the same chunks is the one in which the data tells it."""
MEASURED = """\
On questions that were not learned from. `pairs`: how often the combination that holds more of the evidence has the
larger value. `order`: how far the values of the evidence in two orders are apart, at the median. Values are
probabilities; their calibration error is over ten bins."""
HARD = 8
"""Best candidates without evidence that distractors are drawn from."""
ORDER_WEIGHT = 0.5
"""Weight of a pair that differs in order alone."""
PASS_TOKENS = 1024
"""Tokens of a pass of the network; a batch takes several, each of rows of like length."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A question with an ordered combination of its candidates.

    Attributes:
        ids: Tokens of the row.
        types: Segment of each.
        share: Share of the evidence that the combination holds; a little less in the wrong order.
        is_enough: Whether it holds all of it.
    """

    ids: Int64
    types: Int64
    share: float
    is_enough: bool


class Combiner:
    """Draws combinations of a question's candidates."""

    def __init__(self, reranker_tokens: Any) -> None:
        self._tokens = reranker_tokens

    def __call__(self, pooled: Pooled, generator: np.random.Generator) -> list[Combination]:
        """Return up to five combinations that differ, those that do not fit the window left out."""
        [question], chunks = self._tokens([pooled.question]), self._tokens([chunk.text for chunk in pooled.chunks])
        capacity = WINDOW_TOKENS - NUM_SPECIAL - len(question)
        rows = []
        for order in dict.fromkeys(_orders(pooled, generator)):
            text = np.concatenate([chunks[index] for index in order])
            if 0 < len(text) <= capacity:
                share = _share(pooled, order)
                wrong = len(pooled.ordered) > 1 and order == pooled.ordered[::-1]
                rows.append(Combination(*framed(question, text), share - 0.001 * wrong, share == 1))
        return rows


def _share(pooled: Pooled, order: Order) -> float:
    """Return the share of the evidence that an order holds, of the set that it holds most of."""
    return max((len(set(gold).intersection(order)) / len(gold) for gold in pooled.golds), default=0.0)


def _orders(pooled: Pooled, generator: np.random.Generator) -> Iterator[Order]:
    telling = set().union(*pooled.golds) if pooled.golds else set()
    hard = [index for index in range(len(pooled.chunks)) if index not in telling][:HARD]

    def distractors(number: int) -> list[int]:
        return [int(index) for index in generator.permutation(hard)[:number]]

    if pooled.golds:
        gold = list(pooled.golds[generator.integers(len(pooled.golds))])
        in_order = len(pooled.ordered) > 1 and set(pooled.ordered) == set(gold)
        yield tuple(pooled.ordered) if in_order else tuple(generator.permutation(gold).tolist())
        yield tuple(generator.permutation([*gold, *distractors(int(generator.integers(1, 3)))]).tolist())
        if len(gold) > 1:
            part = generator.permutation(gold)[1:].tolist()
            yield tuple(generator.permutation([*part, *distractors(int(generator.integers(2)))]).tolist())
            yield tuple(pooled.ordered[::-1]) if in_order else (int(generator.choice(gold)),)
    for size in (1, 1 + int(generator.integers(3)), 1)[: 2 if pooled.golds else 3]:
        if chosen := distractors(size):
            yield tuple(chosen)


def loss_of(logits: torch.Tensor, share: torch.Tensor, enough: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch of combinations.

    The cross-entropy of "is this enough", and for all pairs of a question the logistic loss of which one holds more.

    Args:
        logits: `[B]`.
        share: Share of the evidence of each, `[B]`.
        enough: 1 where that is all of it, `[B]`.
        owner: The question of each, `[B]`.
    """
    more = (share[:, None] - share[None, :]) * (owner[:, None] == owner[None, :])
    weight = torch.where(more > 0.01, 1.0, ORDER_WEIGHT) * (more > 0)
    pairs = (weight * functional.softplus(logits[None, :] - logits[:, None])).sum() / weight.sum().clamp(min=1)
    return functional.binary_cross_entropy_with_logits(logits, enough) + pairs


class CombinationBatches(pl.LightningDataModule):  # type: ignore[misc]
    """The batches of a training, in stages of `validate_every`, which are Lightning's epochs.

    What a pass over the questions draws derives from (seed, number of the pass) alone.
    """

    def __init__(self, config: CrossTraining, questions: Sequence[Pooled], combine: Combiner) -> None:
        super().__init__()
        self._config, self._questions, self._combine = config, questions, combine
        self._of_pass = lru_cache(maxsize=1)(self._batches)
        self.steps_a_pass = len(self._of_pass(0))
        self.num_steps = ceil(config.epochs * self.steps_a_pass)
        self.num_stages = ceil(self.num_steps / config.validate_every)

    def _batches(self, number: int) -> list[list[list[Combination]]]:
        generator = np.random.default_rng((self._config.seed, number))
        drawn = [self._combine(self._questions[row], generator) for row in generator.permutation(len(self._questions))]
        batches: list[list[list[Combination]]] = [[]]
        tokens = 0
        for rows in drawn:
            of_question = sum(len(row.ids) for row in rows)
            if tokens and tokens + of_question > self._config.step_tokens:
                batches.append([])
                tokens = 0
            batches[-1].append(rows)
            tokens += of_question
        return batches

    def train_dataloader(self) -> Epoch:
        """Return the batches of this stage; Lightning asks again at every stage."""
        first = self.trainer.current_epoch * self._config.validate_every
        last = min(first + self._config.validate_every, self.num_steps)
        return Epoch(last - first, partial(self.steps, first, last))

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Return the batch as it is: its rows become tensors in groups of like length."""
        return batch

    def steps(self, first: int, last: int) -> Iterator[list[list[Combination]]]:
        """Yield the batches of some steps."""
        for step in range(first, last):
            number, row = divmod(step, self.steps_a_pass)
            of_pass = self._of_pass(number)
            # Another pass draws other combinations, and may need a few batches fewer.
            yield of_pass[row % len(of_pass)]


class CrossModule(pl.LightningModule):  # type: ignore[misc]
    """The network, its loss and its optimizer."""

    def __init__(self, config: CrossTraining, num_steps: int) -> None:
        super().__init__()
        self.network = started(config).train()
        self._config, self._num_steps = config, num_steps

    def training_step(self, batch: list[list[Combination]], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        rows = [row for of_question in batch for row in of_question]
        owner = torch.tensor([number for number, of_question in enumerate(batch) for _ in of_question])
        share = torch.tensor([row.share for row in rows], dtype=torch.float32)
        enough = torch.tensor([row.is_enough for row in rows], dtype=torch.float32)
        logits = self._logits(rows)
        loss = loss_of(logits, *(values.to(logits.device) for values in (share, enough, owner)))
        self.log("loss", loss, batch_size=len(rows))
        return loss

    def _logits(self, rows: Sequence[Combination]) -> torch.Tensor:
        order = sorted(range(len(rows)), key=lambda row: len(rows[row].ids))
        logits, start = [], 0
        while start < len(order):
            longest, end = 0, start
            while end < len(order):
                longest = len(rows[order[end]].ids)
                if end > start and longest * (end + 1 - start) > PASS_TOKENS:
                    break
                end += 1
            chosen = [rows[row] for row in order[start:end]]
            ids, mask = pad([row.ids for row in chosen])
            types, _ = pad([row.types for row in chosen])
            tensors = (torch.from_numpy(array).to(self.device) for array in (ids, mask, types))
            logits.append(self.network(**dict(zip(INPUTS, tensors, strict=True)))[0][:, 0, 0].float())
            start = end
        return torch.cat(logits)[torch.from_numpy(np.argsort(order)).to(self.device)]

    def configure_optimizers(self) -> Any:
        """Return AdamW, and the learning rate's course."""
        optimizer = torch.optim.AdamW([value for value in self.parameters() if value.requires_grad], weight_decay=0.01)
        rate = partial(learning_rate, self._config, num_steps=self._num_steps)
        peak = self._config.learning_rate
        for group in optimizer.param_groups:
            group["lr"] = peak
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def started(config: CrossTraining) -> SpanNetwork:
    """Return the network to train, with the updates and the head of the reader: an answer against none."""
    reader = load_adapter(config.start or shipped_adapter("minilm-reader")).tensors
    rank = next(len(value) for name, value in reader.items() if name.endswith(".down"))
    network = build(load_bert(), rank, config.seed, num_outputs=1)
    given = {name: torch.from_numpy(value).float() for name, value in reader.items()}
    span, none = (2 + KINDS.index(kind) for kind in ("span", "none"))
    given |= {
        f"head.{name}": given[f"head.{name}"][[span]] - given[f"head.{name}"][[none]] for name in ("weight", "bias")
    }
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            plain = name.replace("parametrizations.", "").replace(".weight.0.", ".weight.")
            if plain in given:
                parameter.copy_(given[plain])
    return network


@in_runtime
def train_cross(config: CrossTraining) -> AdapterReport:
    """Train, calibrate, measure, and save the adapter with a model card.

    An interrupted training resumes after its last stage; a finished one is not done again.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
        ModelError: The encoder or the reader that it starts from is missing or damaged.
    """
    out, start = Path(config.out), time.perf_counter()
    kept = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")}
    work = fingerprint({name: kept[name] for name in kept if name not in (*UNMEASURED, *config.runtime_settings)})
    if (report := finished_report(out, work)) is not None:
        return report
    encoder = CachedEncoder(minilm_encoder(), batch=256, path=out / "states.sqlite")
    questions = [pooled for of_source in _questions(config, encoder).values() for pooled in of_source]
    if not any(pooled.golds for pooled in questions):
        raise DataError("no question of the sources has evidence among its candidates; give others")
    data = CombinationBatches(config, questions, Combiner(minilm_encoder().whole_ids))
    module = CrossModule(config, data.num_steps)
    fit(
        module, data, config, work,
        epochs=data.num_stages, device=resolve_device("reranker").device, gradient_clip_val=1.0,
        precision="32-true" if config.precision == "fp32" else "bf16-mixed",
    )  # fmt: skip
    tensors = {name: value.half().numpy() for name, value in export(module.network.cpu()).items()}
    draft = out / "draft"
    settings: dict[str, Any] = {"slope": 1.0, "offset": 0.0, "sources": kept["sources"], "seed": config.seed}
    save_adapter(draft, tensors, AdapterConfig(NAME, FORM, settings), "")
    checks = _questions(replace(config, sources=config.calibration), encoder)
    settings |= _calibrated(MiniLMCross(adapter=draft, output="logit"), checks, config.seed)
    save_adapter(draft, tensors, AdapterConfig(NAME, FORM, settings), "")
    reranker = MiniLMCross(adapter=draft)
    figures = {name: measured(reranker, of_source, config.seed) for name, of_source in checks.items()}
    facts = {
        "questions": len(questions),
        "steps": data.num_steps,
        "hours": round((time.perf_counter() - start) / 3600, 2),
    }
    columns = list(next(iter(figures.values())))
    rows = [(name, *(str(row[column]) for column in columns)) for name, row in figures.items()]
    results: list[Block] = [MEASURED, Table(("questions of", *columns), rows)]
    card = adapter_card(config, NAME, ABOUT, 'reranker = corag.reranker("minilm-cross")', results, facts)
    return ship(config, load_adapter(draft), card, figures, work)


def _questions(config: CrossTraining, encoder: TextEncoder) -> dict[str, list[Pooled]]:
    """Return the questions of the sources, by data folder and unit."""
    found: dict[str, list[Pooled]] = {}
    for source in config.sources:
        of_units = questions_by_unit(Corpus(open_folder(source, config.data), encoder), source, config.units)
        found |= {f"{source.data}, {unit}": of_unit for unit, of_unit in of_units.items()}
    return found


def _drawn(pooled: Pooled, seed: int) -> list[Order]:
    """Return the combinations that a question is measured on."""
    return list(dict.fromkeys(_orders(pooled, np.random.default_rng((seed, len(pooled.id), *pooled.id.encode()[:8])))))


def _calibrated(reranker: MiniLMCross, checks: dict[str, list[Pooled]], seed: int) -> dict[str, float]:
    """Return slope and offset of the probability of being enough, fitted on questions that were not learned from."""
    values: list[FloatArray] = []
    enough: list[FloatArray] = []
    for pooled in (one for of_source in checks.values() for one in of_source):
        orders = _drawn(pooled, seed)
        values.append(reranker.scorer(pooled.question, pooled.chunks)(orders))
        enough.append(np.array([float(_share(pooled, order) == 1) for order in orders]))
    slope, offset = fit_sigmoid(np.concatenate(values), np.concatenate(enough))
    return {"slope": round(slope, 4), "offset": round(offset, 4)}


def measured(reranker: MiniLMCross, questions: Sequence[Pooled], seed: int) -> dict[str, float]:
    """Return figures on questions that were not learned from.

    `pairs`: how often, of two combinations of a question, the one that holds more of the evidence has the larger value.
    `order`: how far the largest and the smallest value of the orders of the evidence are apart, at the median.
    `calibration error`: of the values as probabilities of being enough.
    """
    right, spreads = [], []
    values_of, enough = [], []
    for pooled in questions:
        scorer, orders = reranker.scorer(pooled.question, pooled.chunks), _drawn(pooled, seed)
        values, shares = scorer(orders), [_share(pooled, order) for order in orders]
        for one, two in combinations(range(len(orders)), 2):
            if shares[one] != shares[two]:
                right.append(float((values[one] > values[two]) == (shares[one] > shares[two])))
        if pooled.gold and len(pooled.gold) > 1:
            both = scorer([pooled.gold, pooled.gold[::-1]])
            spreads.append(float(abs(both[0] - both[1])))
        values_of.append(values)
        enough.append(np.array([float(share == 1) for share in shares]))
    return {
        "questions": len(questions),
        "pairs": round(float(np.mean(right)), 4) if right else 0.0,
        "order": round(float(np.median(spreads)), 4) if spreads else 0.0,
        "calibration error": round(calibration_error(np.concatenate(values_of), np.concatenate(enough)), 4),
    }
