"""What a prediction costs beside the embedding that it needs: an agent of the paper's size, with random weights."""

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
from experiments.bench.search import Clock, interleaved_medians
from experiments.run.report import COLORS, new_figure, to_svg

QUESTION = "Which river of the island ends in the lake that is 310 metres deep?"
BATCHES = (1, 4, 16, 64, 256, 1024)
REPEATS = 20
"""A single prediction is too short for the clock: each timing is of this many."""
SEED = 0
TITLE = "the agent: one question, and many at once"
COLUMNS = {"setting": "setting", "us": "us", "us_per_question": "us a question"}


def bench_agent(
    rounds: int, clock: Clock = "wall", *, batches: Sequence[int] = BATCHES
) -> dict[str, list[dict[str, Any]]]:
    """Time predictions, interleaved with the embedding of a question.

    Args:
        rounds: Interleaved runs of each setting; their median counts.
        clock: See `experiments.bench.search.CLOCKS`.
        batches: Questions at once, ascending.

    Returns:
        `rows`: a line of the table each. `curve`: questions at once and microseconds a question.
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
    medians = interleaved_medians({name: run for name, (_, run) in work.items()}, _repeat, rounds, clock)
    times = {name: 1e6 * medians[name] / REPEATS for name in work}
    rows = [
        {"setting": name, "us": times[name], "us_per_question": times[name] / number}
        for name, (number, _) in work.items()
    ]
    curve = [{"questions": number, "us": times[f"predict, {number} at once"] / number} for number in batches]
    return {"rows": rows, "curve": curve}


def random_agent(feature_dim: int) -> agent.ConfigurationAgent:
    """Return an agent of the paper's size (5.1) with random weights, over the rerankers that are registered."""
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
    """Return the same prediction by the exported model, where what exports and runs it is installed."""
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


def batch_plot(curve: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG of the time that a question takes against how many are predicted at once."""
    figure = new_figure(5.6, 3.6)
    panel = figure.subplots()
    questions = [one["questions"] for one in curve]
    panel.plot(questions, [one["us"] for one in curve], marker="o", color=COLORS[0])
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(questions, [f"{number:,}" for number in questions])
    panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    panel.set_xlabel("questions at once")
    panel.set_ylabel("us a question")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return to_svg(figure)
