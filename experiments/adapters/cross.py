"""Trains `minilm-cross`: low-rank updates of all layers of all-MiniLM-L6-v2 and one output; `corag train cross`.

It starts from the reader, which attends from question to context already and whose head tells whether an answer is
there. It learns from combinations of a question's candidates, up to the whole window: which are enough to answer, which
of two holds more of the evidence, at any distance of its parts, and which order of the same chunks is the one in which
the data tells the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from corag.errors import DataError
from corag.models.engine import Int64, pad
from corag.models.minilm import TextEncoder, load_bert, minilm_encoder, pair_row
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import AdapterConfig, load_adapter, save_adapter, shipped_adapter
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import KINDS
from corag.rerankers.minilm_cross import FORM, NAME, NUM_SPECIAL, WINDOW_TOKENS, MiniLMCross
from corag.types import FloatArray, Order
from experiments.adapters.config import CrossTraining, EvidenceSource
from experiments.adapters.encoder import INPUTS, EncoderModule, build, export, plain_name
from experiments.adapters.pools import Pooled, questions_by_unit
from experiments.adapters.training import (
    Fit,
    Learned,
    calibration_error,
    figures_table,
    fit_sigmoid,
    train_once,
)
from experiments.data.pools import shared_encoder
from experiments.run.journal import fingerprint

ABOUT = """\
Reads a question and the joined text of ordered chunks in one pass and gives the probability that they are enough to
answer. All layers of all-MiniLM-L6-v2 (Apache-2.0) with low-rank updates, and one linear output. The training starts
from the reader that ships, and learns which combinations are enough, which of two holds more of the evidence, and which
order of the same chunks is the one in which the data tells it."""
MEASURED = """\
On questions that were not learned from. `pairs`: how often the combination that holds more of the evidence has the
larger value. Of evidence of several chunks: `in order`, how often its value is larger in the data's order than in the
reverse; `adjacent` and `apart`, its mean value without and with other chunks after the first, as many as fit the
window. Values are probabilities; their calibration error is over ten bins."""
HARD = 12
"""Best candidates without evidence that distractors are drawn from."""
ORDER_WEIGHT = 0.5
"""Weight of a pair that differs in order alone."""
PASS_TOKENS = 1024
"""Tokens of a pass of the network; a batch takes several, each of rows of like length."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A question with an ordered combination of its candidates.

    `share` is that of the evidence which it holds, a little less in the wrong order; it `is_enough` if it holds all.
    """

    ids: Int64
    types: Int64
    share: float
    is_enough: bool


def draw(pooled: Pooled, tokens: Any, generator: np.random.Generator) -> list[Combination]:
    """Return up to eight combinations that differ, cut to the window by leaving out distractors."""
    [question], chunks = tokens([pooled.question]), tokens([chunk.text for chunk in pooled.chunks])
    lengths, room = [len(chunk) for chunk in chunks], WINDOW_TOKENS - NUM_SPECIAL - len(question)
    rows = []
    for order in _fitting(pooled, _orders(pooled, generator), lengths, room):
        text = np.concatenate([chunks[index] for index in order])
        if 0 < len(text) <= room:
            share = _share(pooled, order)
            evidence = tuple(index for index in order if index in pooled.ordered)
            wrong = len(pooled.ordered) > 1 and evidence == pooled.ordered[::-1]
            rows.append(Combination(*pair_row(question, text), share - 0.001 * wrong, share == 1))
    return rows


def _fitting(pooled: Pooled, orders: Iterable[Order], lengths: Sequence[int], room: int) -> list[Order]:
    """Return each order once, without as many of its last distractors as it takes to fit; none that is empty then."""
    fitting: dict[Order, None] = {}
    for order in orders:
        kept = list(order)
        for index in reversed(order):
            if sum(lengths[row] for row in kept) > room and index not in _telling(pooled):
                kept.remove(index)
        fitting |= {tuple(kept): None} if kept else {}
    return list(fitting)


def _telling(pooled: Pooled) -> set[int]:
    """Return the chunks that may be evidence."""
    return set().union(*pooled.golds) if pooled.golds else set()


def _share(pooled: Pooled, order: Order) -> float:
    """Return the share of the evidence that an order holds, of the set that it holds most of."""
    return max((len(set(gold).intersection(order)) / len(gold) for gold in pooled.golds), default=0.0)


def _orders(pooled: Pooled, generator: np.random.Generator) -> Iterator[Order]:
    hard = [index for index in range(len(pooled.chunks)) if index not in _telling(pooled)][:HARD]

    def distractors(number: int) -> list[int]:
        return [int(index) for index in generator.permutation(hard)[:number]]

    if pooled.golds:
        gold = list(pooled.golds[generator.integers(len(pooled.golds))])
        in_order = len(pooled.ordered) > 1 and set(pooled.ordered) == set(gold)
        told = tuple(pooled.ordered) if in_order else tuple(generator.permutation(gold).tolist())
        yield told
        yield tuple(generator.permutation([*gold, *distractors(int(generator.integers(1, 3)))]).tolist())
        spread = _among(told, distractors(int(generator.integers(3, HARD))), generator)
        yield spread
        if len(gold) > 1:
            part = generator.permutation(gold)[1:].tolist()
            yield tuple(generator.permutation([*part, *distractors(int(generator.integers(2)))]).tolist())
            yield _among(tuple(part), distractors(int(generator.integers(3, HARD))), generator)
            yield told[::-1] if in_order else (int(generator.choice(gold)),)
            if in_order:  # the same chunks, with the evidence told backwards
                backwards = iter(told[::-1])
                yield tuple(next(backwards) if index in told else index for index in spread)
    for size in (1, 1 + int(generator.integers(3)), 1)[: 2 if pooled.golds else 3]:
        if chosen := distractors(size):
            yield tuple(chosen)


def _among(told: Order, distractors: Sequence[int], generator: np.random.Generator) -> Order:
    """Return evidence at random places among distractors."""
    places = set(generator.choice(len(told) + len(distractors), len(told), replace=False).tolist())
    parts = iter(told), iter(distractors)
    return tuple(next(parts[place not in places]) for place in range(len(told) + len(distractors)))


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


def batches_of(
    config: CrossTraining, questions: Sequence[Pooled], tokens: Any, number: int
) -> list[list[list[Combination]]]:
    """Return the batches of a pass over the questions: in each the combinations of some questions."""
    generator = np.random.default_rng((config.seed, number))
    batches: list[list[list[Combination]]] = [[]]
    used = 0
    for row in generator.permutation(len(questions)):
        rows = draw(questions[row], tokens, generator)
        of_question = sum(len(row.ids) for row in rows)
        if used and used + of_question > config.step_tokens:
            batches.append([])
            used = 0
        batches[-1].append(rows)
        used += of_question
    return batches


class CrossModule(EncoderModule):
    """The network that reads combinations, and its loss."""

    def training_step(self, batch: list[list[Combination]], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        rows = [row for of_question in batch for row in of_question]
        owner = torch.tensor([number for number, of_question in enumerate(batch) for _ in of_question])
        share = torch.tensor([row.share for row in rows], dtype=torch.float32)
        enough = torch.tensor([row.is_enough for row in rows], dtype=torch.float32)
        loss = loss_of(self._logits(rows), *(values.to(self.device) for values in (share, enough, owner)))
        self.log("loss", loss, batch_size=len(rows))
        return loss

    def _logits(self, rows: Sequence[Combination]) -> torch.Tensor:
        order = sorted(range(len(rows)), key=lambda row: len(rows[row].ids))
        groups: list[list[Combination]] = [[]]
        for row in order:
            if groups[-1] and len(rows[row].ids) * (len(groups[-1]) + 1) > PASS_TOKENS:
                groups.append([])
            groups[-1].append(rows[row])
        logits = []
        for group in groups:
            ids, mask = pad([row.ids for row in group])
            types, _ = pad([row.types for row in group])
            tensors = (torch.from_numpy(array).to(self.device) for array in (ids, mask, types))
            logits.append(self.network(**dict(zip(INPUTS, tensors, strict=True)))[0][:, 0, 0].float())
        return torch.cat(logits)[torch.from_numpy(np.argsort(order)).to(self.device)]


def started(seed: int) -> SpanNetwork:
    """Return the network to train, with the updates and the head of the reader: an answer against none."""
    reader = load_adapter(shipped_adapter("minilm-reader")).tensors
    rank = next(len(value) for name, value in reader.items() if name.endswith(".down"))
    network = build(load_bert(), rank, seed, num_outputs=1)
    given = {name: torch.from_numpy(value).float() for name, value in reader.items()}
    span, none = (2 + KINDS.index(kind) for kind in ("span", "none"))
    for name in ("head.weight", "head.bias"):
        given[name] = given[name][[span]] - given[name][[none]]
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if (plain := plain_name(name)) in given:
                parameter.copy_(given[plain])
    return network


@in_runtime
def train_cross(config: CrossTraining) -> Path:
    """Train, calibrate and measure the cross-encoder; see `train_once`.

    Raises:
        DataError: A data folder is missing or damaged, or has nothing to learn.
        ModelError: The encoder or the reader that it starts from is missing or damaged.
    """
    use = f'corag.reranker("{NAME}")'
    return train_once(config, fingerprint(config.work), partial(_learned, config), about=ABOUT, use=use)


def _learned(config: CrossTraining, fit: Fit) -> Learned:
    out = Path(config.out)
    encoder = shared_encoder()
    questions = [pooled for of_source in _questions(config, config.sources, encoder).values() for pooled in of_source]
    checks = _questions(config, config.calibration, encoder)
    batches = partial(batches_of, config, questions, minilm_encoder().whole_ids)
    module = CrossModule(config, started(config.seed), batches)
    network = module.learn(fit, resolve_device("reranker").device)
    tensors = {name: value.cpu().half().numpy() for name, value in export(network).items()}
    settings: dict[str, Any] = {"slope": 1.0, "offset": 0.0, "sources": config.work["sources"], "seed": config.seed}
    save_adapter(out / "draft", tensors, AdapterConfig(NAME, FORM, settings), "")
    slope, offset, figures = _measured(MiniLMCross(adapter=out / "draft", output="logit"), checks, config.seed)
    settings |= {"slope": slope, "offset": offset}
    facts = {"questions": len(questions), "steps": module.num_steps}
    adapter = replace(load_adapter(out / "draft"), config=AdapterConfig(NAME, FORM, settings))
    return Learned(adapter, figures, [MEASURED, figures_table(figures)], facts)


def _questions(
    config: CrossTraining, sources: Sequence[EvidenceSource], encoder: TextEncoder
) -> dict[str, list[Pooled]]:
    """Return the questions of some sources, by data folder and unit."""
    questions: dict[str, list[Pooled]] = {}
    for source in sources:
        by_unit = questions_by_unit(source, config.data, encoder, config.units)
        questions |= {f"{source.data}, {unit}": of_unit for unit, of_unit in by_unit.items() if of_unit}
    if not any(pooled.golds for of_source in questions.values() for pooled in of_source):
        raise DataError("no question of sources, or of calibration, has evidence among its candidates; give others")
    return questions


def _measured(
    reranker: MiniLMCross, checks: dict[str, list[Pooled]], seed: int
) -> tuple[float, float, dict[str, dict[str, float]]]:
    """Return slope and offset of the probability of being enough, and figures of each set of questions."""
    scored = {name: [_scored(reranker, pooled, seed) for pooled in of_source] for name, of_source in checks.items()}
    logits, shares, _ = zip(*(case for cases in scored.values() for case in cases), strict=True)
    slope, offset = fit_sigmoid(np.concatenate(logits), np.concatenate(shares) == 1)
    slope, offset = round(slope, 4), round(offset, 4)
    return slope, offset, {name: _figures(cases, slope, offset) for name, cases in scored.items()}


def _scored(reranker: MiniLMCross, pooled: Pooled, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return logits and shares of the evidence of some orders, and the logits of the evidence in order, if it has one.

    The latter are in the data's order, in the reverse, and in order with other chunks after the first.
    """
    generator = np.random.default_rng((seed, len(pooled.id), *pooled.id.encode()[:8]))
    lengths = [len(ids) for ids in reranker.read([chunk.text for chunk in pooled.chunks])]
    room = reranker.question(pooled.question).capacity
    orders = _fitting(pooled, _orders(pooled, generator), lengths, room)
    scorer = reranker.scorer(pooled.question, pooled.chunks)
    ordered, others = pooled.ordered, [row for row in range(len(lengths)) if row not in _telling(pooled)][:HARD]
    apart = _fitting(pooled, [(*ordered[:1], *others, *ordered[1:])], lengths, room)
    told = scorer([ordered, ordered[::-1], *apart]) if len(ordered) > 1 and pooled.golds else np.zeros(0)
    return scorer(orders), np.array([_share(pooled, order) for order in orders]), told


def _figures(
    cases: Sequence[tuple[FloatArray, FloatArray, FloatArray]], slope: float, offset: float
) -> dict[str, float]:
    """Return the figures that `MEASURED` explains; nan where no evidence has several chunks."""
    values: list[FloatArray] = []
    right: list[bool] = []
    for logits, shares, _ in cases:
        values.append(1 / (1 + np.exp(-(slope * logits + offset))))
        pairs = combinations(range(len(shares)), 2)
        differing = [(one, two) for one, two in pairs if shares[one] != shares[two]]
        right += [(values[-1][one] > values[-1][two]) == (shares[one] > shares[two]) for one, two in differing]
    enough = np.concatenate([shares for _, shares, _ in cases]) == 1
    told = np.array([logits for _, _, logits in cases if len(logits)]).reshape(-1, 3)
    told = 1 / (1 + np.exp(-(slope * told + offset))) if len(told) else np.full((1, 3), np.nan)
    return {
        "questions": len(cases),
        "pairs": round(float(np.mean(right)), 4) if right else 0.0,
        "in order": round(float(np.where(np.isnan(told[:, 0]), np.nan, told[:, 0] > told[:, 1]).mean()), 4),
        "adjacent": round(float(told[:, 0].mean()), 4),
        "apart": round(float(told[:, 2].mean()), 4),
        "calibration error": round(calibration_error(np.concatenate(values), enough), 4),
    }
