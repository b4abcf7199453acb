"""Trains the value `fused`: logistic regressions over signals of passages and of sentences; `corag train fused`.

All kinds of questions weigh the same, and every question of a kind. What the weights are worth on a kind that they did
not learn from is measured by leaving each kind out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from common.configuration import Configuration
from corag.cli.console import progress
from corag.errors import DataError
from corag.models.runtime import in_runtime, resolve_device
from corag.models.trained import Adapter, save_adapter, shipped_adapter
from corag.registry import EMBEDDERS, RERANKERS
from corag.rerankers.fused import (
    FORM,
    LATE,
    NAME,
    WORDS,
    Fused,
    FusedWeights,
    features,
    likeness_of,
    links_of,
    passed_on,
    probability,
    sentence_features,
)
from corag.text.data import Query, is_evidence
from corag.text.documents import Document
from corag.text.units import SENTENCE, ranges_of, source_of, units
from corag.types import Chunk, FloatArray
from experiments.adapters.config import FusedTraining
from experiments.adapters.training import Learned, facts_table, fit_line, train_adapter
from experiments.data.pools import shared_encoder
from experiments.evaluation.metrics import answer_recall
from experiments.evaluation.support import Support, contains_answer, support_recall
from experiments.labels.config import LabelConfig
from experiments.labels.examples import SourceQuestions, read_sources
from experiments.run.journal import fingerprint

ABOUT = """\
The probability that a passage, or a sentence of it, is evidence for a question, from what several rerankers say of it
and of the passages that are like it: logistic regressions with a few dozen weights over frozen models, and one weight
for pages that another probable page names by their title. A combination is worth its expected share of the evidence.
"""
MEASURED = """\
On kinds of questions that the weights in question have not learned from: nDCG@10 of passages, beside late interaction
alone; and the mean true share of the evidence in the most probable sentences whose expected share is .85 to .98."""
PROMISED = (0.85, 0.98)
STRENGTH = 1.0
"""Of the fit against half the squared weights, for a question weighing 1."""
LINKS = (0.0, 8.0)
"""Bounds of the weight of links."""
ANSWER_SHARE = 0.5
"""A sentence of a gold passage is evidence if it has this share of the answer's words that its best sentence has."""


@dataclass(frozen=True, slots=True)
class FusedExample:
    """A question to learn from, with n passages and m sentences.

    `signals` are those of its passages, `[n, S]`, `likeness` and `links` the `likeness_of` and `links_of` these,
    `[n, n]`, and `gold` says which are evidence, `[n]`; `late` and `words` are late interaction and BM25 of each
    sentence, `[m]`, `owner` is the index of its passage, `[m]`, and `right` how far it is evidence, 0 to 1, `[m]`.
    """

    name: str
    kind: str
    signals: FloatArray
    likeness: FloatArray
    links: FloatArray
    gold: FloatArray
    late: FloatArray
    words: FloatArray
    owner: NDArray[np.intp]
    right: FloatArray


@in_runtime
def train_fused(config: FusedTraining) -> Path:
    """Train and measure a value; see `train_adapter`. Data with nothing to learn from is a `DataError`."""
    work = fingerprint(config.measured_settings() | {"precision": resolve_device("reranker").precision})
    return train_adapter(config, work, lambda *_: _learned(config), ABOUT)


def _learned(config: FusedTraining) -> Learned:
    sources = read_sources(LabelConfig(out="", data=config.data, sources=config.sources))
    examples = described(sources, config.signals, quiet=config.quiet)
    if len({gold for example in examples for gold in example.gold.tolist()}) < 2:
        raise DataError(
            "of the candidates of all questions none is evidence, or each is, so there is nothing to learn; give other "
            "sources"
        )
    weights = fitted(examples, config.signals)
    figures = left_out(examples, config.signals, Path(config.out) / "left-out")
    adapter = Adapter(NAME, FORM, weights.settings(), weights.tensors())
    facts = {"questions": len(examples), "passages": sum(len(one.gold) for one in examples)}
    return Learned(adapter, figures, [MEASURED, facts_table(figures)], facts)


def described(sources: Sequence[SourceQuestions], signals: Sequence[str], *, quiet: bool) -> list[FusedExample]:
    """Return the questions of sources that have candidates, with their signals."""
    encoder = shared_encoder()
    embedder = EMBEDDERS.make("minilm", encoder=encoder)
    blank = FusedWeights(tuple(signals), np.zeros(2 * len(signals) + 1), 0.0, np.zeros(4), 0.0, 1.0, 0.0)
    fused = Fused(adapter=blank, encoder=encoder)
    of_sentences = [RERANKERS.make(LATE, encoder=encoder), RERANKERS.make(WORDS)]
    found = []
    for source in sources:
        pool = source.open_pool(source.queries, embedder, quiet=quiet)
        with progress(f"describe {source.settings.data}", quiet=quiet) as report:
            for number, query in enumerate(source.queries, start=1):
                passages = [candidate.chunk for candidate in pool[query.id]][: source.settings.num_candidates]
                if passages:
                    about, documents = (source.key(query), source.settings.kind), source.folder.documents
                    found.append(_example(about, query, passages, documents, fused, of_sentences))
                report(number, len(source.queries))
    return found


def _example(
    about: tuple[str, str],
    query: Query,
    passages: Sequence[Chunk],
    documents: Mapping[str, Document],
    fused: Fused,
    of_sentences: Sequence[Any],
) -> FusedExample:
    gold = np.array([float(any(is_evidence(chunk, entry) for entry in query.evidence)) for chunk in passages])
    rows = {chunk.id: row for row, chunk in enumerate(passages)}
    sentences = [unit for chunk in passages for unit in units(chunk, SENTENCE)]
    owner = np.array([rows[source_of(unit).id] for unit in sentences], dtype=np.intp)
    singles = [(row,) for row in range(len(sentences))]
    late, words = (reranker.scorer(query.question, sentences)(singles) for reranker in of_sentences)
    right = gold[owner] * _evidence_of(query, sentences, gold[owner], documents)
    signals = fused.signal_values(query.question, passages, fused.late(query.question, passages))
    return FusedExample(*about, signals, likeness_of(passages), links_of(passages), gold, late, words, owner, right)


def _evidence_of(
    query: Query, sentences: Sequence[Chunk], in_gold: FloatArray, documents: Mapping[str, Document]
) -> FloatArray:
    """Return how far each sentence is evidence, by the finest that is known of the question, `[m]`."""
    support = Support.of(query, documents)
    if any(span.known != "answer" for span in support.spans):
        return np.array([float(bool(support_recall(support.spans, [one]))) for one in sentences])
    if support.ranges:
        return np.array([float(any(_overlaps(one, span) for span in support.ranges)) for one in sentences])
    if support.answers:
        holds = np.array([float(contains_answer(one.text, support.answers)) for one in sentences])
        if (holds * in_gold).any():
            return holds
    if not query.answers:
        return np.ones(len(sentences))
    recalls = np.array([answer_recall(one.text, query.answers) for one in sentences])
    most = float((recalls * in_gold).max(initial=0.0))
    return np.where(recalls >= ANSWER_SHARE * most, recalls / max(most, 1e-9), 0.0).clip(0, 1)


def _overlaps(sentence: Chunk, span: tuple[str, int, int]) -> bool:
    document, first, last = span
    return any(name == document and start < last and first < end for name, start, end in ranges_of(sentence) or ())


def fitted(examples: Sequence[FusedExample], signals: Sequence[str]) -> FusedWeights:
    """Return the weights that fit the examples, all kinds weighing the same."""
    share = _shares(examples)
    x = np.concatenate([features(one.signals, one.likeness) for one in examples])
    gold, blank = np.concatenate([one.gold for one in examples]), np.zeros(x.shape[1] + 1)
    passage = _fit(x, gold, np.repeat(share, [len(one.gold) for one in examples]), blank)
    weights = FusedWeights(tuple(signals), passage[:-1], float(passage[-1]), np.zeros(4), 0.0, 1.0, 0.0)
    weights = replace(weights, link=_link(weights, examples, share))
    of_sentences = [sentence_features(_passages(weights, one), one.owner, one.late, one.words) for one in examples]
    right = np.concatenate([one.right for one in examples])
    as_passages = (1.0, 0.0, 0.0, 0.0, 0.0)
    sentence = _fit(np.concatenate(of_sentences), right, _of_sentences(examples, share), as_passages)
    weights = replace(weights, sentence=sentence[:-1], sentence_bias=float(sentence[-1]))
    return replace(weights, sharpness=_sharpness(weights, examples))


def fit_own(
    sources: Sequence[SourceQuestions], own: Sequence[Configuration], out: Path, fold: Mapping[str, int], *, quiet: bool
) -> tuple[str, list[Configuration]]:
    """Fit the shipped value, with rerankers of one's own as further signals, to all questions and to each half of them.

    Returns:
        The value in `out`, spelled, and `corag` by the values of the halves: the first of these has not seen the
        questions of even folds, the second those of odd ones. Nothing where a half has no evidence to learn from.
    """
    base = FusedWeights.load(shipped_adapter(NAME))
    signals = tuple(dict.fromkeys([*base.signals, *own]))
    examples = described(sources, signals, quiet=quiet)
    odd, even = ([one for one in examples if fold[one.name] % 2 == part] for part in (1, 0))
    made = []
    for name, learned in {"half-0": odd, "half-1": even, NAME: examples}.items():
        if not any(one.gold.any() for one in learned):
            return "", []
        weights = refitted(base, learned, signals)
        save_adapter(out / name, Adapter(NAME, FORM, weights.settings(), weights.tensors()), ABOUT)
        made.append(Configuration(NAME, {"adapter": str(out / name), **({"signals": list(own)} if own else {})}))
    return str(made[2]), [Configuration("corag", {"reranker": str(one)}) for one in made[:2]]


def refitted(base: FusedWeights, examples: Sequence[FusedExample], signals: Sequence[str]) -> FusedWeights:
    """Return a value with further signals, the last of `signals`: how far the examples trust it, and each of these.

    Its own weights are scaled as one, so that few questions are enough.
    """
    share, num = _shares(examples), len(signals)
    known = np.isin(np.arange(2 * num + 1) % num, np.arange(len(base.signals)))
    known[-1] = True
    tables = [
        (
            base.passages(one.signals[:, : len(base.signals)], one.likeness, one.links),
            features(one.signals, one.likeness),
        )
        for one in examples
    ]
    x = np.concatenate([np.column_stack([logits, table[:, ~known]]) for logits, table in tables])
    gold = np.concatenate([one.gold for one in examples])
    as_it_is = (1.0, *np.zeros(x.shape[1]))
    scale, *further, bias = _fit(x, gold, np.repeat(share, [len(one.gold) for one in examples]), as_it_is)
    passage = np.zeros(2 * num + 1)
    passage[known], passage[~known] = scale * base.passage, further
    bias = scale * base.passage_bias + bias
    weights = replace(base, signals=tuple(signals), passage=passage, passage_bias=bias, link=scale * base.link)
    x = np.concatenate([_sentences(weights, one) for one in examples])[:, None]
    right = np.concatenate([one.right for one in examples])
    scale, bias = _fit(x, right, _of_sentences(examples, share), (1.0, 0.0))
    weights = replace(weights, sentence=scale * base.sentence, sentence_bias=scale * base.sentence_bias + bias)
    return replace(weights, sharpness=_sharpness(weights, examples))


def _passages(weights: FusedWeights, example: FusedExample) -> FloatArray:
    return weights.passages(example.signals, example.likeness, example.links)


def _sentences(weights: FusedWeights, example: FusedExample) -> FloatArray:
    return weights.sentences(_passages(weights, example), example.owner, example.late, example.words)


def _of_sentences(examples: Sequence[FusedExample], share: FloatArray) -> FloatArray:
    """Return the weight of each sentence: all of a question together weigh what its passages do."""
    each = share * [len(one.gold) / len(one.owner) for one in examples]
    return np.repeat(each, [len(one.owner) for one in examples])


def shares(weights: FusedWeights, example: FusedExample, sharpness: float) -> tuple[FloatArray, FloatArray]:
    """Return the expected and the true share of the evidence in the k most probable sentences, each `[m]`, k from 1 on.

    A passage is held with its first sentence.
    """
    logits = _sentences(weights, example)
    best = np.argsort(-logits, kind="stable")
    expected = (probability(logits[best]) ** sharpness).cumsum()
    first = np.zeros(len(best))
    first[np.unique(example.owner[best], return_index=True)[1]] = 1.0
    return expected / expected[-1], (first * example.gold[example.owner[best]]).cumsum() / example.gold.sum()


def _link(weights: FusedWeights, examples: Sequence[FusedExample], share: FloatArray) -> float:
    """Return the weight of links with which the passages' likelihood is largest, all else as it is; 0 without links."""
    of_each = [_passages(weights, one) for one in examples]
    passed = np.concatenate([passed_on(of, one.links) for of, one in zip(of_each, examples, strict=True)])
    logits = np.concatenate(of_each)
    gold, share = np.concatenate([one.gold for one in examples]), np.repeat(share, [len(one.gold) for one in examples])

    def loss(link: float) -> float:
        of_all = logits + link * passed
        return float(share @ (np.logaddexp(0.0, of_all) - gold * of_all))

    return float(minimize_scalar(loss, bounds=LINKS, method="bounded").x) if passed.any() else 0.0


def _sharpness(weights: FusedWeights, examples: Sequence[FusedExample]) -> float:
    """Return the power of probabilities with which expected and true shares agree in the mean, where one promises."""

    def error(sharpness: float) -> float:
        of_kinds: dict[str, list[FloatArray]] = {}
        for one in examples:
            if one.gold.any():
                of_kinds.setdefault(one.kind, []).append(promised(*shares(weights, one, sharpness)))
        pairs = [np.concatenate(of, axis=1) for of in of_kinds.values()]
        expected, held = np.mean([of.mean(axis=1) for of in pairs if of.size] or [(0.0, 0.0)], axis=0)
        return float((expected - held) ** 2)

    return float(minimize_scalar(error, bounds=(0.5, 4.0), method="bounded").x)


def promised(expected: FloatArray, held: FloatArray) -> FloatArray:
    """Return expected and true shares where the expected one is such as one promises, `[2, k]`."""
    near = (expected >= PROMISED[0]) & (expected < PROMISED[1])
    return np.stack([expected[near], held[near]])


def _shares(examples: Sequence[FusedExample]) -> FloatArray:
    """Return the weight of each passage of each question, such that kinds weigh the same, and questions within one."""
    kinds = [example.kind for example in examples]
    raw = np.array([1 / (kinds.count(one.kind) * len(one.gold)) for one in examples])
    rows = np.array([len(one.gold) for one in examples])
    return np.asarray(raw * rows.sum() / (raw @ rows))


def _fit(x: FloatArray, right: FloatArray, share: FloatArray, otherwise: ArrayLike) -> FloatArray:
    """Return weights and bias of a logistic regression on `[k, d]`, where `right` may be between 0 and 1, `[k]`.

    If all of it is 0, or all is 1, there is nothing to fit, and they are `otherwise`.
    """
    if right.max() == 0 or right.min() == 1:
        return np.asarray(otherwise, dtype=np.float64)
    both, label = np.concatenate([x, x]), np.repeat([1.0, 0.0], len(x))
    weight = np.concatenate([share * right, share * (1 - right)])
    return fit_line(both[weight > 0], label[weight > 0], strength=STRENGTH, weight=weight[weight > 0])


def left_out(examples: Sequence[FusedExample], signals: Sequence[str], out: Path) -> dict[str, Any]:
    """Return what weights that have not learned from a kind are worth on it, for each kind and in the mean.

    The weights are written to `out`, a folder for each kind.
    """
    figures: dict[str, Any] = {}
    names = list(dict.fromkeys(example.kind for example in examples))
    for kind in names if len(names) > 1 else ():
        weights = fitted([one for one in examples if one.kind != kind], signals)
        folder = out / kind.replace("/", "-")  # a kind may be the path of its data
        save_adapter(folder, Adapter(NAME, FORM, weights.settings(), weights.tensors()), ABOUT)
        own = [one for one in examples if one.kind == kind and one.gold.any()]
        if not own or not weights.passage.any():
            continue  # nothing to measure by, or the others have nothing to learn from
        late = signals.index(LATE)
        ranked = [ndcg(_passages(weights, one), one.gold) for one in own]
        figures[f"{kind}: nDCG@10"] = round(float(np.mean(ranked)), 3)
        alone = [ndcg(one.signals[:, late], one.gold) for one in own]
        figures[f"{kind}: nDCG@10, late interaction"] = round(float(np.mean(alone)), 3)
        pairs = np.concatenate([promised(*shares(weights, one, weights.sharpness)) for one in own], axis=1)
        if pairs.size:
            expected, held = pairs.mean(axis=1).tolist()
            figures[f"{kind}: expected share of evidence"] = round(expected, 3)
            figures[f"{kind}: share of evidence"] = round(held, 3)
    for name in dict.fromkeys(key.rpartition(": ")[2] for key in figures):
        of = [value for key, value in figures.items() if key.endswith(f": {name}")]
        figures[f"mean: {name}"] = round(float(np.mean(of)), 3)
    return figures


def ndcg(values: FloatArray, gold: FloatArray, depth: int = 10) -> float:
    """Return nDCG@depth of a ranking by values, `[n]`, where `gold` has the relevance, `[n]`, which is not all 0."""
    discounts = 1 / np.log2(np.arange(2, min(depth, len(gold)) + 2))
    best = gold[np.argsort(-values, kind="stable")[:depth]]
    return float(best @ discounts / (np.sort(gold)[::-1][:depth] @ discounts))
