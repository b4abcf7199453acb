"""What all benchmarks share: interleaved timings, chunks, a model, and figures of one style."""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Literal, TypeVar

from corag.models.engine.engine import quiet
from corag.optional import require
from corag.progress import counted
from corag.registry import tokens as make_tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.documents import Document
from corag.text.tokens import model_folder
from corag.types import Chunk
from experiments import demo
from experiments.run.drawing import COLORS, new_figure, to_svg

T = TypeVar("T")
Clock = Literal["wall", "cpu"]
CLOCKS: Mapping[Clock, Callable[[], float]] = {"wall": perf_counter, "cpu": process_time}
"""`cpu` adds up the seconds of all threads of this process: other programs on the machine distort it less."""


@dataclass(frozen=True)
class Timing:
    """How settings are timed: runs of each, whose median counts, and a clock of `CLOCKS`."""

    rounds: int
    clock: Clock = "wall"

    @property
    def now(self) -> Callable[[], float]:
        """The clock."""
        return CLOCKS[self.clock]

    def run(self, runs: Mapping[str, Callable[[], T]]) -> tuple[dict[str, float], dict[str, T]]:
        """Return the median seconds of each setting, and what its last run returned.

        Every round runs all settings in turn, so that a slow moment of the machine affects them alike.
        """
        now = self.now
        times: dict[str, list[float]] = {name: [] for name in runs}
        found: dict[str, T] = {}
        for _ in counted("rounds", range(self.rounds)):
            for name, run in runs.items():
                started = now()
                found[name] = run()
                times[name].append(now() - started)
        return {name: median(values) for name, values in times.items()}, found

    def medians(self, runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Return the median seconds of each setting."""
        return self.run(runs)[0]


@dataclass
class Watch:
    """Adds up the seconds of steps by name."""

    now: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, run: Callable[..., T]) -> Callable[..., T]:
        """Return a function that does what `run` does and adds its seconds to a step."""

        def timed(*args: Any, **kwargs: Any) -> T:
            started = self.now()
            try:
                return run(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - started

        return timed


def peak_mb() -> float:
    """Return the most memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def memory_mb() -> float:
    """Return the memory that this process has to itself now; the most that it ever had where that is not known."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return peak_mb()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private")) / 2**10


def demo_chunks(max_tokens: int, content: demo.Demo | None = None) -> list[Chunk]:
    """Return the chunks of the demo corpus."""
    documents = (content or demo.load()).documents
    cut = [Document(row["id"], row["text"], row["title"]) for row in documents]
    return [chunk for one in cut for chunk in chunk_document(one, make_tokens(), ChunkConfig(max_tokens))]


def make_model(folder: Path) -> Path:
    """Save MiniLM with a seeded head of one label, and its tokenizer, in the layout of a hub checkpoint."""
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        settings = {"num_labels": 1, "local_files_only": True}
        transformers.BertForSequenceClassification.from_pretrained(source, **settings).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(source / file, folder / file)
    return folder


def bar_plot(
    bars: Mapping[str, float], xlabel: str, *, texts: str, colors: Sequence[str] | str = COLORS[0], log: bool = False
) -> str:
    """Return an SVG of horizontal bars, each labelled with its value in the format `texts`."""
    figure = new_figure(7.2, 0.4 * len(bars) + 1.1)
    panel = figure.subplots()
    drawn = panel.barh(list(bars), list(bars.values()), color=colors, height=0.62)
    panel.bar_label(drawn, [format(value, texts) for value in bars.values()], padding=3, fontsize=9)
    panel.invert_yaxis()
    panel.set_xlabel(xlabel)
    panel.margins(x=0.15)
    if log:
        panel.set_xscale("log")
    return finished(figure, grid=False)


def stacked_bars(panel: Any, names: Sequence[str], parts: Mapping[str, Sequence[float]]) -> None:
    """Draw a horizontal bar for each name, from the first down, made of parts that stand side by side."""
    left = [0.0] * len(names)
    for (part, widths), color in zip(parts.items(), COLORS * 2, strict=False):
        panel.barh(list(names), widths, left=left, label=part, color=color, height=0.62)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    panel.invert_yaxis()


def lines(panel: Any, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draw curves, given by name as their places and heights."""
    for (name, (xs, ys)), color in zip(curves.items(), COLORS, strict=False):
        panel.plot(xs, ys, marker="o", label=name, color=color, linewidth=1.6, markersize=4)


def log_axes(panel: Any, xs: Sequence[int], xlabel: str, ylabel: str) -> None:
    """Give a panel logarithmic axes with the measured numbers as its only ticks."""
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(xs, [f"{number:,}" for number in xs])
    panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)


def finished(figure: Any, *, grid: bool = True, legend_size: int = 9, top_inches: float = 0) -> str:
    """Return a figure as SVG, in the style of all benchmarks; each panel has a legend unless the figure has one."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
        if grid:
            panel.grid(alpha=0.3)
        if panel.get_legend_handles_labels()[1] and not figure.legends:
            panel.legend(frameon=False, fontsize=legend_size)
    # `top_inches` stay free for the legend of the whole figure.
    figure.tight_layout(rect=(0, 0, 1, 1 - top_inches / figure.get_figheight()))
    return to_svg(figure)
