"""A device measured in at most nine minutes: every shipped model's parity with fp32 on the CPU, its speed and memory.

The cross-encoder is of base size with random weights. Needs no network; with `device="cpu"` it measures the CPU.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import corag
from corag.memory import forget
from corag.models.runtime import resolve_device
from corag.optional import require
from corag.text.documents import SEPARATOR
from corag.types import FloatArray, Order
from experiments.bench.harness import TINY, PooledQuestion, Timing, pooled_questions, save_cross_encoder

if TYPE_CHECKING:
    from experiments.bench.run import BenchConfig

SECONDS = 540.0
"""No row starts after this many seconds."""
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
"""Shape of the cross-encoder."""
ROUNDS = 3
TITLE = "on a device: parity with fp32 on the CPU, speed and memory"
COLUMNS = {
    "setting": "setting", "precision": "precision", "largest_difference": "largest difference",
    "rank_correlation": "rank corr.", "seconds": "seconds", "per_s": "questions/s", "gpu_peak_gb": "GPU, GB",
    "error": "error",
}  # fmt: skip

Run = Callable[[Sequence[PooledQuestion]], FloatArray]
"""Values of a part for questions, `[questions, values]`."""


def measure(config: BenchConfig, timing: Timing) -> list[dict[str, Any]]:
    """Measure every part at every precision, and return the rows of the table; one that fails says so in its row."""
    ends, small = time.monotonic() + SECONDS, config.small
    num_candidates, compared, timed = (3, 1, 2) if small else (20, 10, 50)
    questions = pooled_questions(config.data, timed, num_candidates)
    device = resolve_device("reranker").device
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(save_cross_encoder(Path(scratch), **(TINY if small else BASE)))
        parts: dict[str, Callable[..., Run]] = {"minilm embedder": _embedder, "minilm-reader": _reader}
        shipped = [name for name in corag.RERANKERS.local if "backend" in corag.RERANKERS.settings(name)]
        parts |= {name: partial(_reranker, name, backend="torch") for name in shipped}
        parts["cross-encoder"] = partial(_reranker, "cross-encoder", model=folder)
        for name, make in parts.items():
            try:
                for row in _rows(make, device, questions, compared, timing):
                    rows.append({"setting": name, **row})
                    if time.monotonic() > ends:
                        return [*rows, {"setting": name, "error": "no time was left"}]
            except Exception as error:  # noqa: BLE001 - a part that fails leaves the others their time
                rows.append({"setting": name, "error": f"{type(error).__name__}: {error}"})
    return rows


def _rows(
    make: Callable[..., Run], device: str, questions: Sequence[PooledQuestion], compared: int, timing: Timing
) -> Iterator[dict[str, Any]]:
    """Yield a row for each precision of one part; both devices run PyTorch."""
    cuda = require("torch", "models").cuda if device.startswith("cuda") else None
    exact = make(device="cpu", precision="fp32")(questions[:compared])
    for precision in ("fp32", "bf16") if device == "cpu" else ("fp32", "bf16", "fp16"):
        forget()
        if cuda:
            cuda.empty_cache()
            cuda.reset_peak_memory_stats(device)
        run = make(device=device, precision=precision)
        values = run(questions[:compared])
        ranks = [np.argsort(np.argsort(one, axis=1), axis=1) for one in (values, exact)]
        row = {"precision": precision, "largest_difference": float(np.abs(values - exact).max())}
        if values.shape[1] > 1:
            row["rank_correlation"] = float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(*ranks, strict=True)]))

        def timed(run: Run = run) -> FloatArray:
            forget()
            return run(questions)

        times, _ = timing.run({"all": timed})
        row |= {"seconds": times["all"], "per_s": len(questions) / times["all"]}
        if cuda:
            row["gpu_peak_gb"] = cuda.max_memory_allocated(device) / 1e9
        yield row


def _embedder(**where: Any) -> Run:
    embedder = corag.embedder("minilm", backend="torch", **where)
    return lambda questions: np.stack([embedder.embed(_texts(pool)).astype(float).ravel() for _, pool in questions])


def _reranker(name: str, **settings: Any) -> Run:
    reranker = corag.reranker(name, **settings)

    def values(questions: Sequence[PooledQuestion]) -> FloatArray:
        rows = []
        for question, pool in questions:
            singles: list[Order] = [(row,) for row in range(len(pool))]
            pairs: list[Order] = [(row, row + 1) for row in range(len(pool) - 1)]
            rows.append(reranker.scorer(question, [one.chunk for one in pool])([*singles, *pairs]))
        return np.array(rows)

    return values


def _reader(**where: Any) -> Run:
    reader: Any = corag.reader("minilm-reader", backend="torch", **where)

    def confidences(questions: Sequence[PooledQuestion]) -> FloatArray:
        contexts = [SEPARATOR.join(_texts(pool[:4])) for _, pool in questions]
        answers = reader.answer_many([question for question, _ in questions], contexts)
        return np.array([[answer.confidence] for answer in answers])

    return confidences


def _texts(pool: Any) -> list[str]:
    return [candidate.chunk.text for candidate in pool]
