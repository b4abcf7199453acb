"""Trains values of the form `evidence-sets`, such as `minilm-evidence`: `corag train value`.

Networks score each set of candidates that may be the evidence. The loss of a question is the cross-entropy of its true
set among all (the empty one where the evidence is missing). If several may be true, since the data tells passages and
not which of their sentences, it is that of their sum. Larger sets are many and drawn; those drawn stand for all.

Letters: M networks, N sets of the questions of a batch, F features, H hidden units.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import WandbLogger
from scipy.special import expit
from torch import nn
from torch.utils.data import DataLoader

import search
from agent.training.lightning import loader_of, train_module
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.encoders import TextEncoder
from corag.models.engine import Float32
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import Adapter
from corag.registry import EMBEDDERS
from corag.registry import tokens as make_tokens
from corag.rerankers.evidence.reranker import (
    CLIP,
    FORM,
    MAX_SIZE,
    NAME,
    Ensemble,
    EvidenceScorer,
    Hypotheses,
    Sets,
    Weights,
    describe,
    sets_of,
    weigh,
)
from corag.rerankers.evidence.signals import PassageReader, Signals, signals
from corag.selectors.problem import SelectionProblem, cut_problem
from corag.text.data import Query, is_evidence
from corag.text.documents import Document
from corag.text.units import SENTENCE, source_of
from corag.types import Chunk, FloatArray, Order
from experiments.adapters.config import ValueTraining
from experiments.adapters.training import Learned, calibration_error, facts_table, fit_line, train_adapter
from experiments.data.pools import shared_encoder
from experiments.data.splits import hash_fraction, held_out, questions_of
from experiments.evaluation.support import supporting_spans
from experiments.labels.config import LabelConfig
from experiments.labels.examples import read_sources
from experiments.run.journal import fingerprint

ABOUT = """\
Values combinations of chunks for a question by the probability that they hold all evidence and the expected share of
it. Small networks on the frozen encoder all-MiniLM-L6-v2 (Apache-2.0), in the format
`evidence-sets` of `corag/rerankers/evidence/`. They run in NumPy; an order costs microseconds.
"""
CALIBRATED = """\
On the fifth of the questions that the networks have not learned from. A value is calibrated to the probability that an
order holds all evidence, over the orders that the tree search scores."""
MEASURED = """\
What it selects under a budget beside other methods: `corag evaluate --config experiments/configs/comparison.yaml`."""
MEMBERS, HIDDEN, BATCH_SIZE, DROPOUT, LEARNING_RATE, WEIGHT_DECAY = 5, 48, 16, 0.4, 5e-3, 1e-2
"""Networks of the ensemble, which differ in initial weights and dropout; hidden units of each; questions of a batch."""
UNANSWERABLE = 0.2
"""Share of the questions that are learned from a second time without their evidence."""
MAX_SETS, DRAWN = 300, 120
"""Sets that may be the evidence of one question, at most, and others of each size that are drawn for it."""
LISTED = 100_000
"""Sets of one size beyond this number are drawn without listing them."""
VOCABULARY = 30522
"""Tokens that MiniLM knows."""
TEMPERATURES = np.geomspace(0.5, 4.0, 43)
BUDGET, ORDERS_SAMPLED = 320, 100
"""Of a calibrated question's searches: about so many tokens, and orders that the calibration looks at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its candidates, best first.

    `golds` are the sets of indices, ascending, each of which may be the evidence; none if it is not among the
    candidates. `is_held_out` says that nothing is learned.
    """

    question: str
    chunks: Sequence[Chunk]
    golds: Sequence[tuple[int, ...]]
    is_held_out: bool = False


class Example(NamedTuple):
    """Sets of a question's candidates: those that may be the evidence, `num_true`, first, then others, which are drawn.

    `corrections` are logarithms of how many sets each stands for.
    """

    num_true: int
    features: Float32  # [N, F]
    corrections: Float32  # [N]


@in_runtime
def train_value(config: ValueTraining) -> Path:
    """Train, calibrate and measure a value; see `train_adapter`.

    A data folder that is missing or damaged, or has nothing to learn, is a `DataError`.
    """
    work = fingerprint(config.measured_settings() | {"precision": resolve_device("embedder").precision})
    return train_adapter(config, work, partial(_learned, config), ABOUT)


def _learned(config: ValueTraining, state: Path, log: WandbLogger | None) -> Learned:
    encoder = shared_encoder()
    asked = list(_questions(config, encoder))
    if {True, False} != {one.is_held_out for one in asked if one.golds}:
        raise DataError(f"too few questions have evidence of at most {MAX_SIZE} candidates; give more")
    texts = dict.fromkeys(source_of(chunk).text for one in asked for chunk in one.chunks)
    of_texts = list(map(np.unique, encoder.whole_ids(list(texts))))
    holders = np.bincount(np.concatenate(of_texts), minlength=VOCABULARY)
    # How rare each token is: the inverse document frequency of BM25, in half precision.
    rarity = np.log1p((len(texts) - holders + 0.5) / (holders + 0.5)).astype(np.float16).astype(np.float64)
    read, learned_from, calibrated_on = PassageReader(encoder), list[Example](), list[tuple[Asked, Signals]]()
    with progress("describe", quiet=config.quiet) as report:
        for number, one in enumerate(asked, start=1):
            seen = signals(one.question, encoder.question(one.question), read(one.chunks), rarity)
            if one.is_held_out:
                calibrated_on.append((one, seen))
            else:
                learned_from.append(example_of(one, seen))
            report(number, len(asked))
    module = ValueModule(learned_from, config)
    device = resolve_device("reranker").device
    with progress("train", quiet=config.quiet) as report:
        shown = LambdaCallback(on_train_epoch_end=lambda trainer, _: report(trainer.current_epoch + 1, config.epochs))
        train_module(module, state, device=device, epochs=config.epochs, hooks=[shown], logger=log)
    tensors = {**module.tensors(), "rarity": rarity}
    weights, figures = calibrated(Ensemble(tensors), calibrated_on, config.seed)
    stored = {name: value.astype(np.float32) for name, value in tensors.items()}
    settings = {"weights": weights._asdict(), "sources": config.measured_settings()["sources"], "seed": config.seed}
    facts = {
        "questions": len(learned_from),
        "without evidence": sum(not one.num_true for one in learned_from),
        "networks": MEMBERS,
    }
    return Learned(Adapter(NAME, FORM, settings, stored), figures, [CALIBRATED, facts_table(figures), MEASURED], facts)


def _questions(config: ValueTraining, encoder: TextEncoder) -> Iterator[Asked]:
    """Yield the questions of all sources with passages and with their sentences, some again without their evidence."""
    embedder = EMBEDDERS.make("minilm", encoder=encoder)
    for source in read_sources(LabelConfig(out="", data=config.data, sources=config.sources)):
        settings, documents = source.settings, source.folder.documents
        pool = source.open_pool(source.queries, embedder, quiet=config.quiet)
        kept_back = held_out(source.folder, questions_of(source.folder, settings.split))
        for query in filter(lambda one: one.evidence, source.queries):
            offered = pool[query.id][: settings.num_candidates]
            others = [one for one in offered if not any(is_evidence(one.chunk, entry) for entry in query.gold)]
            is_repeated = hash_fraction(query.id, "unanswerable") < UNANSWERABLE
            for candidates in (offered, others) if is_repeated and len(others) < len(offered) else (offered,):
                passages = SelectionProblem(query.question, candidates, make_tokens(), 1)
                has_evidence = bool(evidence_sets(query, documents, [one.chunk for one in candidates]))
                for size in (None, SENTENCE):
                    chunks = cut_problem(passages, size).chunks
                    golds = evidence_sets(query, documents, chunks)
                    small = [gold for gold in golds if len(gold) <= MAX_SIZE]
                    if chunks and bool(golds) == has_evidence == bool(small):
                        yield Asked(query.question, chunks, small, query.id in kept_back)


def evidence_sets(
    query: Query, documents: Mapping[str, Document], chunks: Sequence[Chunk]
) -> tuple[tuple[int, ...], ...]:
    """Return the sets of chunks each of which may be the evidence, indices ascending; none if some of it is missing.

    Of units, the supporting sentences that people marked are the evidence. Where passages alone are known, one unit of
    each is, and nobody knows which: every such set that holds a sentence with the answer may be.
    """
    are_units = any(source_of(chunk) is not chunk for chunk in chunks)
    spans = supporting_spans(query, documents) if are_units else ()
    holding = [{row for row, chunk in enumerate(chunks) if span.is_held_by(chunk)} for span in spans]
    if spans and spans[0].known == "fact":
        return (tuple(sorted(set[int]().union(*holding))),) if all(holding) else ()
    telling = set[int]().union(*holding)
    by_entry = []
    for entry in query.gold:
        rows = [row for row, chunk in enumerate(chunks) if is_evidence(source_of(chunk), entry)]
        # Those that hold an answer are kept, whatever their rank.
        by_entry.append(sorted(rows, key=lambda row: row not in telling)[: int(MAX_SETS ** (1 / len(query.gold)))])
    sets = {tuple(sorted(set(rows))) for rows in product(*by_entry) if not telling or telling.intersection(rows)}
    return tuple(sorted(sets))


def example_of(asked: Asked, seen: Signals) -> Example:
    """Return a question with its sets of candidates."""
    num = len(asked.chunks)
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{asked.question} {num}".encode()).digest()[:8], "big"))
    true, others, corrections = list[Float32](), list[Float32](), [np.zeros(len(asked.golds))]
    for size in range(1, min(MAX_SIZE, num) + 1):
        of_size = [gold for gold in asked.golds if len(gold) == size]
        if of_size:
            true.append(describe(seen, np.array(of_size, dtype=np.intp)))
        drawn, total = _other_sets(num, size, set(of_size), rng)
        if len(drawn):
            others.append(describe(seen, drawn))
            corrections.append(np.full(len(drawn), np.log(total / len(drawn))))
    features = np.concatenate([*true, *others])
    return Example(len(asked.golds), features, np.concatenate(corrections).astype(np.float32))


def _other_sets(num: int, size: int, golds: set[tuple[int, ...]], rng: np.random.Generator) -> tuple[Sets, int]:
    """Return up to `DRAWN` sets of a size that are not the evidence (all of one candidate), and how many there are."""
    total = math.comb(num, size) - len(golds)
    if total > LISTED:  # drawn one by one: equal ones are rare
        drawn = {tuple(sorted(rng.choice(num, size, replace=False).tolist())) for _ in range(DRAWN)} - golds
        return np.array(sorted(drawn), dtype=np.intp), total
    sets = sets_of(size, num)
    sets = sets[[tuple(row) not in golds for row in sets.tolist()]]
    return (sets[rng.choice(total, DRAWN, replace=False)] if total > DRAWN and size > 1 else sets), total


class ValueModule(pl.LightningModule):  # type: ignore[misc]
    """Networks trained side by side, each a linear part and hidden units: they share batches and nothing else."""

    def __init__(self, examples: Sequence[Example], config: ValueTraining) -> None:
        super().__init__()
        self.examples, self.config = examples, config
        rows = np.concatenate([one.features[::5] for one in examples]).astype(np.float64)
        self.mean, self.scale = rows.mean(axis=0), rows.std(axis=0) + 1e-3
        num_features, generator = len(self.mean), torch.Generator().manual_seed(config.seed)
        # As in `nn.Linear`.
        bound = num_features**-0.5
        hidden = torch.empty(MEMBERS, HIDDEN, num_features + 1).uniform_(-bound, bound, generator=generator)
        self.hidden, self.hidden_bias = nn.Parameter(hidden[..., :-1].clone()), nn.Parameter(hidden[..., -1].clone())
        self.linear, self.bias = nn.Parameter(torch.zeros(MEMBERS, num_features)), nn.Parameter(torch.zeros(MEMBERS))
        self.output = nn.Parameter(torch.zeros(MEMBERS, HIDDEN))
        self.dropout = nn.Dropout(DROPOUT)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return this epoch's batches; Lightning asks again at every epoch."""
        rng = np.random.default_rng((self.config.seed, self.trainer.current_epoch))
        order = rng.permutation(len(self.examples))
        batches = np.array_split(order, math.ceil(len(order) / BATCH_SIZE))
        return loader_of([self.batch(rows.tolist()) for rows in batches])

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return some questions as tensors."""
        examples = [self.examples[row] for row in rows]
        x = np.clip((np.concatenate([one.features for one in examples]) - self.mean) / self.scale, -CLIP, CLIP)
        return {
            "features": torch.from_numpy(x.astype(np.float32)),
            "corrections": torch.from_numpy(np.concatenate([one.corrections for one in examples])),
            "sizes": torch.tensor([len(one.features) for one in examples]),
            "num_true": torch.tensor([one.num_true for one in examples]),
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, `[N, F]` to `[M, N]`."""
        units = torch.einsum("nf,mhf->mnh", x, self.hidden) + self.hidden_bias[:, None]
        activations = self.dropout(nn.functional.gelu(units, approximate="tanh"))
        return self.linear @ x.T + self.bias[:, None] + torch.einsum("mnh,mh->mn", activations, self.output)

    def losses(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean loss of each network over questions, `[M]`."""
        logits, losses = self(batch["features"]) + batch["corrections"], []
        for part, num_true in zip(torch.split(logits, batch["sizes"].tolist(), 1), batch["num_true"], strict=True):
            # The empty set is first.
            chances = torch.log_softmax(torch.cat([part.new_zeros(len(part), 1), part], 1), 1)
            true = slice(1, 1 + int(num_true)) if num_true else slice(0, 1)
            losses.append(-chances[:, true].logsumexp(1))
        return torch.stack(losses).mean(0)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Let dropout depend on the step alone, so that a resumed training ends with the same bits."""
        torch.manual_seed(self.config.seed * 1_000_003 + self.global_step)

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the sum of the losses: the networks share no weight, so each has the gradient of its own."""
        losses = self.losses(batch)
        self.log("train_loss", losses.mean(), on_step=False, on_epoch=True, batch_size=len(batch["sizes"]))
        return losses.sum()

    def configure_optimizers(self) -> Any:
        """Return AdamW with a one-cycle schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def tensors(self) -> dict[str, FloatArray]:
        """Return what the library evaluates the networks by; see `Ensemble`."""
        parts = {name: part.detach().cpu().double().numpy() for name, part in self.named_parameters()}
        return {"mean": self.mean, "scale": self.scale, **parts}


def calibrated(
    network: Ensemble, questions: Sequence[tuple[Asked, Signals]], seed: int
) -> tuple[Weights, dict[str, float]]:
    """Return temperature, slope and offset, fitted on questions that the network has not learned from, and figures.

    Orders that hold all evidence and orders that do not both have to occur; else a `DataError`.
    """
    weighed, true = list[Hypotheses](), list[list[int]]()
    for asked, seen in questions:
        weighed.append(weigh(seen, network))
        golds = set(asked.golds or [()])
        true.append([row for row, chosen in enumerate(weighed[-1].sets) if chosen in golds])
    # A set that is too weak to be among the hypotheses counts as one in a million.
    losses = [
        np.mean([-np.log(max(of.probabilities(t)[rows].sum(), 1e-6)) for of, rows in zip(weighed, true, strict=True)])
        for t in TEMPERATURES.tolist()
    ]
    temperature = round(float(TEMPERATURES[int(np.argmin(losses))]), 4)
    utilities, complete = list[FloatArray](), list[bool]()
    for row, ((asked, _), of) in enumerate(zip(questions, weighed, strict=True)):
        scorer = EvidenceScorer(of, Weights(temperature, slope=1.0, offset=0.0))
        orders = sample_search_orders(scorer, asked.chunks, seed + row)
        utilities.append(scorer.logits(orders))
        complete += [any(set(gold).issubset(order) for gold in asked.golds) for order in orders]
    x, right = np.concatenate(utilities), np.array(complete, dtype=np.float64)
    if right.min() == right.max():
        some = "every order" if right.all() else "no order"
        raise DataError(f"{some} of the {len(questions)} held-out questions holds all evidence; give more questions")
    slope, offset = (round(float(one), 4) for one in fit_line(x[:, None], right))
    hits = [int(of.logits.argmax()) in rows for of, rows in zip(weighed, true, strict=True)]
    weights = Weights(temperature, slope, offset)
    return weights, {
        "loss of the true hypothesis": round(float(min(losses)), 4),
        "most probable hypothesis is true": round(float(np.mean(hits)), 4),
        "calibration error": round(calibration_error(expit(slope * x + offset), right), 4),
        **weights._asdict(),
    }


def sample_search_orders(scorer: EvidenceScorer, chunks: Sequence[Chunk], seed: int) -> list[Order]:
    """Return orders that a search scores, drawn at random."""
    costs = [max(1, len(chunk.text) // 4) for chunk in chunks]  # about four characters a token in English
    tree = search.search(costs, scorer, BUDGET, search.SearchConfig(iterations=40, exploration=0.001)).tree
    assert tree is not None
    scored = np.arange(len(tree))[1:]  # behind the root
    nodes = np.random.default_rng(seed).permutation(scored)[:ORDERS_SAMPLED]
    return [tree.order(node) for node in sorted(nodes.tolist())]
