"""The time of a prediction beside that of the embedding that it needs: an agent of the paper's size, random weights."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import agent
import corag
from corag.registry import RERANKERS
from experiments.bench.harness import Timing, finished, log_axes
from experiments.run.drawing import COLORS, new_figure

QUESTION = "Which river of the island ends in the lake that is 310 metres deep?"
BATCHES = (1, 4, 16, 64, 256, 1024)
REPEATS = 20
"""A single prediction is too short for the clock: each timing is of this many."""
SEED = 0
ROUNDS = 11
TITLE = "the agent: one question, and many at once"
COLUMNS = {"setting": "setting", "us": "us", "us_per_question": "us a question"}


def bench_agent(timing: Timing, *, batches: Sequence[int] = BATCHES) -> dict[str, list[dict[str, Any]]]:
    """Time predictions of `batches` questions at once, interleaved with the embedding of a question.

    Returns `rows`, the lines of the table, and `curve`: questions at once and microseconds a question.
    """
    embedder = corag.embedder()
    predictor = random_agent(embedder.dimension)
    vectors = np.random.default_rng(SEED).normal(size=(max(batches), embedder.dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    work: dict[str, tuple[int, Callable[[], object]]] = {
        "embed a question (minilm)": (1, partial(embedder.embed, [QUESTION])),
        **{f"predict, {number} at once": (number, partial(predictor.predict, vectors[:number])) for number in batches},
        **_by_onnx(predictor, vectors[:1]),
    }
    for _, run in work.values():
        run()
    medians = timing.medians({name: partial(_repeat, run) for name, (_, run) in work.items()})
    times = {name: 1e6 * medians[name] / REPEATS for name in work}
    rows = [
        {"setting": name, "us": times[name], "us_per_question": times[name] / number}
        for name, (number, _) in work.items()
    ]
    curve = [{"questions": number, "us": times[f"predict, {number} at once"] / number} for number in batches]
    return {"rows": rows, "curve": curve}


def random_agent(feature_dim: int) -> agent.ConfigurationAgent:
    """Return an agent of the paper's size (5.1) with random weights, over the registered rerankers."""
    config = agent.AgentConfig(
        feature_dim=feature_dim,
        rerankers=RERANKERS.names,
        ranges=agent.Ranges(iterations=(1, 32), exploration=(0.0, 3.0), cost_weight=(0.0, 0.5)),
        embedder="minilm",
    )
    rng = np.random.default_rng(SEED)
    weights = {name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in config.tensor_shapes.items()}
    return agent.ConfigurationAgent(config, weights)


def _by_onnx(
    predictor: agent.ConfigurationAgent, vector: NDArray[np.float32]
) -> dict[str, tuple[int, Callable[[], object]]]:
    """Return the same prediction by the exported model, where onnx and OpenVINO are installed."""
    if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("openvino") is None:
        return {}
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        path = agent.export_onnx(predictor, Path(folder) / "agent.onnx")
        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return {"predict, 1 at once, ONNX by OpenVINO": (1, partial(compiled, vector))}


def _repeat(run: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        run()


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of microseconds a question against questions predicted at once."""
    curve = measured["curve"]
    figure = new_figure(5.6, 3.6)
    panel = figure.subplots()
    questions = [one["questions"] for one in curve]
    panel.plot(questions, [one["us"] for one in curve], marker="o", color=COLORS[0])
    log_axes(panel, questions, "questions at once", "us a question")
    return finished(figure)
