"""The checkpoint of a tuning: what was chosen, what else is worth, the router's weights, and one page about it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.optional import require
from corag.selectors.corag.routing import Kind, Router, Worth
from corag.selectors.corag.tuned import CENTRES, CONFIG_FILE, FIGURES, FORM, FORMAT_VERSION, WEIGHTS_FILE
from corag.text.visible import to_json
from experiments.run.journal import write_atomically
from experiments.tune.config import TuneConfig
from experiments.tune.configurations import Configuration
from experiments.tune.dial import dial_table, plot_dial

if TYPE_CHECKING:
    from experiments.tune.tune import Tuned

COLUMNS = {"f1": "F1", "rougeL": "ROUGE-L", "evidence_recall": "evidence recall", "cost_tokens": "tokens"}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body{{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}
td,th{{padding:.1em .6em;text-align:left}}
table{{border-collapse:collapse}}tr:nth-child(even){{background:#f4f4f4}}</style>
{body}</html>
"""


ONE_KIND = Kind("all", "your questions")


def write_checkpoint(out: Path, found: Tuned, config: TuneConfig, record: Mapping[str, Any]) -> None:
    """Write the folder; what an earlier tuning left there is replaced."""
    chosen = found.chosen
    text = report(found, config)
    names, router = chosen.router_names, chosen.router
    if router is None:
        # What is chosen comes first among equals.
        place = found.names.index(chosen.configuration)
        order = [place, *(other for other in range(len(found.names)) if other != place)]
        names, router = tuple(found.names[one] for one in order), of_one_kind(chosen.worth, order)
    content = {
        "chosen": asdict(Configuration.parse(chosen.configuration)),
        "prefer": config.prefer,
        "budget_tokens": config.budget,
        "estimates": {name: asdict(one) for name, one in chosen.estimates.items()},
        "lead": asdict(chosen.lead),
        "router_lead": None if chosen.router_lead is None else asdict(chosen.router_lead),
        "verdict": found.verdict,
        "dial": [asdict(one) for one in found.curve],
        "questions": found.questions,
        **record,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "README.md", text)
    write_atomically(out / "dial.svg", svg := plot_dial(found.curve))
    write_atomically(out / "report.html", page(text, svg))
    write_router(out, names, router, content)


def of_one_kind(worth: Worth, order: Sequence[int]) -> Router:
    """Return a router without kinds, given what each configuration is worth, and their order."""
    unknown = Worth(*(getattr(worth, name)[list(order)] for name in FIGURES))
    only = Worth(*(getattr(unknown, name)[None] for name in FIGURES))
    return Router((ONE_KIND,), only, unknown, np.zeros((0, 0)))


def write_router(out: Path, names: Sequence[str], router: Router, record: Mapping[str, Any]) -> None:
    """Write what `corag.selectors.corag.tuned` reads; its network, where it has one, stands in the folder already."""
    if router.looks:
        save = require("safetensors.numpy", "models").save
        write_atomically(out / WEIGHTS_FILE, save({CENTRES: router.centres.astype(np.float32)}))
    content = {
        "form": FORM,
        "format_version": FORMAT_VERSION,
        "configurations": [asdict(Configuration.parse(name)) for name in names],
        "kinds": [asdict(kind) for kind in router.kinds],
        "worth": _plain(router.worth),
        "unknown": _plain(router.unknown),
        "sharpness": router.sharpness,
        "unsure_below": router.unsure_below,
        "min_gain": router.min_gain,
        "as_good": None if router.as_good is None else np.round(router.as_good, 4).tolist(),
        "network": router.network is not None,
        **record,
    }
    # Last: a folder with this file is a whole checkpoint.
    write_atomically(out / CONFIG_FILE, to_json(content, indent=2) + "\n")


def _plain(worth: Worth) -> dict[str, Any]:
    return {name: np.round(getattr(worth, name), 5).tolist() for name in FIGURES}


def report(found: Tuned, config: TuneConfig) -> str:
    """Return the page about a tuning, as Markdown."""
    chosen = found.chosen
    shown = [name for name in COLUMNS if any(name in of_one for of_one in found.means.values())]
    header = ["configuration", *(COLUMNS[name] for name in shown), "own gain", "shrunken gain", "own share"]
    rows = []
    for name in sorted(found.names, key=lambda name: -_gain(found, name)):
        figures = [_number(found.means[name].get(figure), 0 if figure == "cost_tokens" else 3) for figure in shown]
        one = chosen.estimates.get(name)
        gains = ["", "", ""] if one is None else [_signed(one.own), _signed(one.posterior), f"{one.weight:.0%}"]
        mark = f"**`{name}`**" if name == chosen.configuration else f"`{name}`"
        rows.append([mark, *figures, *gains])
    table = "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])
    answer = {"f1": "F1", "rougeL": "ROUGE-L"}[config.answer]
    sealed = f" {found.sealed} sealed questions were left out." if found.sealed else ""
    weights = f"{1 - config.evidence_weight:g} and {config.evidence_weight:g}"
    retrieval = Configuration.parse(chosen.configuration).retrieval
    power = "Every fold chose the default."
    if chosen.lead.visible:
        power = f"A lead of {chosen.lead.visible:.3f} would have been seen in four of five such tests."
    methods = f'"corag,corag(agent={config.out})"' + (f" --retrieval {retrieval}" if retrieval else "")
    counted = "" if config.prefer == "quality" else f" Preferred: {config.prefer}."
    return f"""\
# Tuned on {Path(config.data).resolve().name}

**{found.verdict}**

Chosen: `{chosen.configuration}`. {_router_line(found)}

```sh
corag ask "..." --agent {config.out}
corag evaluate --data {config.data} --methods {methods} --budget {config.budget} --out result.json
```

{found.questions} questions in {found.groups} groups that share documents, {config.budget} tokens of context.{sealed}
Quality: {answer} of the answer by `{config.reader}` and evidence recall, with weights {weights}.{counted}

{table}

Own gain: mean difference in quality from `{found.names[0]}` on these questions. Shrunken gain: the same, weighed
against what other kinds of questions say; the own share is the weight of these questions. The highest shrunken gain is
chosen.

On questions that took no part in the choice (cross-validation, questions that share documents together): {chosen.lead}.
{power}

## The dial

What is chosen as the price of tokens (of a whole budget) or of time (of a second) rises, on these questions;
`--prefer NAME` or `--prefer PRICE` sets it when the checkpoint is used.

{dial_table(found.curve)}
"""


def page(markdown: str, figure: str = "") -> str:
    """Return a page in HTML, with a figure (SVG) at its end."""
    from markdown_it import MarkdownIt

    title = markdown.partition("\n")[0].removeprefix("# ")
    return PAGE.format(title=html.escape(title), body=MarkdownIt().enable("table").render(markdown) + figure)


def _gain(found: Tuned, name: str) -> float:
    one = found.chosen.estimates.get(name)
    return 0.0 if one is None else one.posterior


def _router_line(found: Tuned) -> str:
    router, gain = found.chosen.router, found.chosen.router_lead
    if gain is None:
        return "There were too few questions to look for kinds among them."
    if router is None:
        return f"Kinds among the questions, each with a choice of its own, gained nothing that is certain: {gain}."
    used = dict.fromkeys(chosen_by_kind(found))
    names = ", ".join(f"`{name}`" for name in used)
    number = len(router.kinds)
    return f"{number} kinds of questions have a choice of their own ({names}); over one choice for all: {gain}."


def chosen_by_kind(found: Tuned) -> list[str]:
    """Return the configuration of each kind, where a router has some."""
    router = found.chosen.router
    if router is None:
        return []
    return [found.chosen.router_names[int(row.argmax())] for row in router.worth.utility(found.prices)]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
