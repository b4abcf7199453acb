"""The model card of an evidence reranker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from corag.rerankers.evidence.parts import EvidenceParts
from experiments.adapters.calibration import Reliability
from experiments.adapters.evidence.config import EvidenceTraining
from experiments.agents.train import commit
from experiments.run.drawing import new_figure, to_svg
from experiments.run.tables import markdown_table

LICENCES = {
    "2wikimultihopqa": "Apache-2.0",
    "clapnq": "Apache-2.0, text CC BY-SA 3.0",
    "hotpotqa": "CC BY-SA 4.0",
    "multihoprag_facts": "ODC-BY 1.0",
    "musique": "CC BY 4.0",
    "nq_qed": "CC BY-SA 3.0",
    "policyqa": "MIT",
    "pubmedqa": "MIT",
    "squad": "CC BY-SA 4.0",
    "tatqa": "CC BY 4.0",
}
"""Of the data."""

TEMPLATE = """\
# {name}

Scores ordered combinations of chunks for a question by the probability that they hold all evidence, the expected share
of it, their length and their order. A small network on the frozen encoder all-MiniLM-L6-v2 (Apache-2.0), stored in the
format `evidence-sets`: see `corag/rerankers/evidence/`. It runs in NumPy; an order costs microseconds.

```python
import corag

reranker = corag.reranker("{name}")
```

Licence of the weights: Apache-2.0. They contain no text of the data, whose licences are below.

## Training data

{sources}

Questions that share a gold passage or its title are on the same side of the split (`experiments/data/splits.py`).
A distractor may be on both sides.

{facts}

Made by `corag train value`, seed {seed}, commit {commit}. Settings: `{fit}`; value: `{weights}`.

## Results

{figures}

## Calibration

Values are calibrated to the probability that an order holds all evidence, each on training questions that its network
has not seen. Measured on the tests, over the orders that a beam search scores:

{calibration}
"""


def evidence_card(
    config: EvidenceTraining,
    parts: EvidenceParts,
    facts: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Mapping[str, float]]],
    reliabilities: Mapping[str, Reliability],
) -> str:
    """Return the card as Markdown."""
    sources = [
        (
            source.data,
            source.split,
            source.limit or "all",
            f"{source.held_out:.0%}",
            "its own" if source.within == "candidates" else f"{source.num_candidates}, from the {source.within}",
            LICENCES.get(source.data, "?"),
        )
        for source in config.sources
    ]
    headings = ("data", "split", "questions, at most", "held out", "candidates", "licence")
    return TEMPLATE.format(
        name=config.name,
        sources=markdown_table(headings, sources),
        facts=_table("fact", {name: {"value": value} for name, value in facts.items()}),
        seed=config.seed,
        commit=commit(),
        fit=asdict(config.fit),
        weights=asdict(parts.weights),
        figures="\n\n".join(f"### {name}\n\n{_table('method', methods)}" for name, methods in figures.items()),
        calibration="\n\n".join(_calibration(reliabilities)) or "not measured",
    )


def _table(corner: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [[name, *(_number(row.get(column, "")) for column in columns)] for name, row in rows.items()]
    return markdown_table([corner, *columns], lines)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}"
    return str(value)


def _calibration(reliabilities: Mapping[str, Reliability]) -> Iterator[str]:
    if reliabilities:
        yield _table("test", {name: {"expected calibration error": one.error} for name, one in reliabilities.items()})
    for name, found in reliabilities.items():
        rows = {f"{value:.2f}": {"complete": share, "orders": number} for value, share, number in found.bins}
        yield f"### {name}\n\n{_table('values', rows)}"


def reliability_figure(reliabilities: Mapping[str, Reliability]) -> str:
    """Return a reliability diagram as SVG."""
    figure = new_figure(4.2, 3.6)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for name, found in reliabilities.items():
        axes.plot([v for v, _, _ in found.bins], [s for _, s, _ in found.bins], marker="o", markersize=3, label=name)
    axes.set_xlabel("value")
    axes.set_ylabel("share with all of the evidence")
    if reliabilities:
        axes.legend(fontsize=7, frameon=False)
    return str(to_svg(figure))
