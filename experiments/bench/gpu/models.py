"""The models: parity with the CPU, and tokens a second beside the bare model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, cast

import numpy as np

import corag
from corag.errors import InputError
from corag.models.devices import kind_of
from corag.models.engine.engine import quiet
from corag.models.engine.pytorch import DTYPES
from corag.models.minilm import load_bert, minilm_encoder
from corag.models.runtime import BATCH_TOKENS, Precision
from corag.optional import require
from corag.rerankers.cross_encoder import CrossEncoder
from corag.text.documents import SEPARATOR
from corag.types import FloatArray, Order, Reranker
from experiments.bench.gpu.made import World
from experiments.bench.gpu.stage import Stage
from experiments.bench.scoring import perfect_batches

SHIPPED = (
    "minilm-cosine", "minilm-maxsim", "minilm-softsim", "minilm-pooled", "minilm-multihop", "minilm-factoid",
    "minilm-longform",
    "minilm-sentence",
)  # fmt: skip
READER = "minilm-reader"
PAIRS = 10
"""Orders of two chunks that are compared for each question, beside all single ones."""


def precisions(device: str) -> tuple[Precision, ...]:
    """Return the precisions that are worth measuring on a device."""
    return ("fp32", "bf16") if kind_of((device,)) == "cpu" else ("fp32", "bf16", "fp16")


def parity(world: World, stage: Stage) -> None:
    """Compare values, vectors and answers on the device with those in fp32 on the CPU, both through PyTorch."""
    asked = range(world.size.compared)
    texts = world.texts[: 10 * world.size.compared]
    for precision, found in _on_both(stage, lambda **at: corag.embedder("minilm", **at).embed(texts).astype(float)):
        stage.row(part="minilm embedder", precision=precision, **_compared(found, [texts]))
    named: dict[str, dict[str, str]] = {name: {} for name in SHIPPED}
    for name, settings in {**named, "cross-encoder": {"model": str(world.cross_encoder)}}.items():
        # On a CPU a cross-encoder of base size takes a second for a thousand tokens.
        some = asked[: max(1, len(asked) // 4)] if settings else asked

        def values(some: Sequence[int] = some, name: str = name, settings: Any = settings, **at: Any) -> FloatArray:
            reranker = corag.reranker(name, **settings, **at)
            return np.array([_values(reranker, world, number) for number in some])

        for precision, found in _on_both(stage, values):
            stage.row(part=name, precision=precision, **_compared(found, some))
    _reader_parity(world, stage)


def _values(reranker: Reranker, world: World, number: int) -> FloatArray:
    chunks = [candidate.chunk for candidate in world.pools[number]]
    orders: list[Order] = [(place,) for place in range(len(chunks))]
    orders += [(place, place + 1) for place in range(min(PAIRS, len(chunks) - 1))]
    return np.asarray(reranker.scorer(world.queries[number].question, chunks)(orders))


def _on_both(stage: Stage, run: Callable[..., FloatArray]) -> Iterator[tuple[str, tuple[FloatArray, FloatArray]]]:
    """Yield each precision with what it gives on the device, and what the CPU gives in fp32."""
    exact = run(device="cpu", precision="fp32", backend="torch")
    for precision in precisions(stage.device):
        stage.check()
        yield precision, (run(device=stage.device, precision=precision, backend="torch"), exact)


def _compared(both: tuple[FloatArray, FloatArray], rows: Sequence[Any]) -> dict[str, Any]:
    found, exact = (np.atleast_2d(values) for values in both)
    ranks = [np.argsort(np.argsort(values, axis=1), axis=1) for values in (found, exact)]
    correlations = [np.corrcoef(one, other)[0, 1] for one, other in zip(*ranks, strict=True)]
    return {
        "compared": len(rows),
        "largest_difference": float(np.abs(found - exact).max()),
        "rank_correlation": float(np.mean(correlations)),
        "same_best": float((found.argmax(axis=1) == exact.argmax(axis=1)).mean()),
    }


def _reader_parity(world: World, stage: Stage) -> None:
    questions = [query.question for query in world.queries[: world.size.compared]]
    contexts = [
        SEPARATOR.join(candidate.chunk.text for candidate in pool[:4]) for pool in world.pools[: len(questions)]
    ]

    def answers(**at: Any) -> list[Any]:
        return list(cast(Any, corag.reader(READER, backend="torch", **at)).answer_many(questions, contexts))

    exact = answers(device="cpu", precision="fp32")
    for precision in precisions(stage.device):
        stage.check()
        found = answers(device=stage.device, precision=precision)
        pairs = list(zip(found, exact, strict=True))
        stage.row(
            part=READER,
            precision=precision,
            compared=len(pairs),
            largest_difference=max(abs(one.confidence - other.confidence) for one, other in pairs),
            same_best=float(np.mean([one.text == other.text for one, other in pairs])),
        )


def speed(world: World, stage: Stage) -> None:
    """Measure tokens a second: from texts, from token ids, and of the bare model on batches without padding."""
    encoder = minilm_encoder("torch", "fp32", stage.device)
    texts = world.texts
    ids = encoder.tokenize(texts).ids
    lengths = [len(row) + 2 for row in ids]
    tokens = sum(lengths)
    for precision in precisions(stage.device):
        encoder = minilm_encoder("torch", precision, stage.device)
        embedder = corag.embedder("minilm", backend="torch", precision=precision, device=stage.device)
        runs: dict[str, Callable[[], object]] = {
            "embeddings, from texts": partial(embedder.embed, texts),
            "embeddings, from token ids": partial(encoder.sentence_embeddings, ids),
            "states of all tokens, from token ids": partial(encoder.states, ids),
        }
        for setting, run in runs.items():
            row = _timed(stage, world.size.seconds, run, tokens)
            stage.row(model="minilm", precision=precision, setting=setting, **row)
    _bare(stage, world, "minilm", load_bert, lengths, ("input_ids", "attention_mask"))
    _reader_speed(world, stage)
    _cross_encoder_speed(world, stage)


def _reader_speed(world: World, stage: Stage) -> None:
    asked = world.queries[: world.size.questions]
    contexts = [SEPARATOR.join(one.chunk.text for one in pool[:4]) for pool in world.pools[: len(asked)]]
    counter = corag.tokens("minilm")
    tokens = int(counter.count(contexts).sum() + counter.count([query.question for query in asked]).sum())
    for precision in precisions(stage.device):
        reader = cast(Any, corag.reader(READER, backend="torch", precision=precision, device=stage.device))
        run = partial(reader.answer_many, [query.question for query in asked], contexts)
        setting = "answers, from texts; windows overlap"
        row = _timed(stage, world.size.seconds, run, tokens)
        stage.row(model=READER, precision=precision, setting=setting, **row)


def _cross_encoder_speed(world: World, stage: Stage) -> None:
    texts = world.texts[: max(1, world.size.texts // 4)]
    lengths: list[int] = []
    for precision in precisions(stage.device):
        reranker = CrossEncoder(model=world.cross_encoder, backend="torch", precision=precision, device=stage.device)
        question = reranker.question(world.queries[0].question)
        ids = reranker.tokenize(texts)
        lengths = [len(row) for row in question.pairs(ids)[0]]
        run = partial(reranker.values, [(question, ids)])
        row = _timed(stage, world.size.seconds, run, sum(lengths))
        stage.row(model="cross-encoder", precision=precision, setting="values, from token ids", **row)
    transformers = require("transformers", "models")
    load = partial(transformers.BertForSequenceClassification.from_pretrained, world.cross_encoder)
    _bare(stage, world, "cross-encoder", load, lengths, ("input_ids", "attention_mask", "token_type_ids"))


def _bare(
    stage: Stage, world: World, name: str, load: Callable[[], Any], lengths: Sequence[int], inputs: Sequence[str]
) -> None:
    """Measure a transformers module, all of it in each precision, on batches that stand on the device."""
    torch = require("torch", "models")
    batches = perfect_batches(lengths, BATCH_TOKENS[kind_of((stage.device,))])
    tensors = [{key: torch.from_numpy(batch[key]).to(stage.device) for key in inputs} for batch in batches]
    tokens = sum(batch["input_ids"].size for batch in batches)
    for precision in precisions(stage.device):
        with quiet():
            module = load().to(stage.device, getattr(torch, DTYPES[precision])).eval()

        def run(module: Any = module) -> None:
            with torch.inference_mode():
                for batch in tensors:
                    module(**batch)
            if torch.cuda.is_available():
                torch.cuda.synchronize()

        # Not every CPU multiplies in every precision.
        with suppress(InputError, NotImplementedError):
            row = _timed(stage, world.size.seconds, run, tokens)
            stage.row(model=name, precision=precision, setting="bare, no padding, all in this precision", **row)


def _timed(stage: Stage, seconds: float, run: Callable[[], object], tokens: int) -> dict[str, Any]:
    """Run once to warm up, then for some seconds; return the median."""
    run()
    times: list[float] = []
    while not times or sum(times) < seconds:
        stage.check()
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return {"runs": len(times), "seconds": median(times), "tokens_per_s": round(tokens / median(times))}
