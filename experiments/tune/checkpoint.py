"""The checkpoint of a tuning: what was chosen, what else is worth, the router's weights, and one page about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.optional import require
from corag.selectors.corag.routing import Kind, Router, Worth
from corag.selectors.corag.tuned import CENTRES, CONFIG_FILE, FIGURES, FORM, FORMAT_VERSION, WEIGHTS_FILE
from corag.text.visible import to_json
from experiments.run.drawing import interval_plot
from experiments.run.journal import write_atomically
from experiments.run.page import Cell, Drawing, Table, render
from experiments.run.tables import markdown_table
from experiments.tune.config import TuneConfig
from experiments.tune.configurations import Configuration
from experiments.tune.dial import DIAL, dial_rows, plot_dial

if TYPE_CHECKING:
    from experiments.tune.tune import Tuned

COLUMNS = {"f1": "F1", "rougeL": "ROUGE-L", "evidence_recall": "evidence recall", "cost_tokens": "tokens"}
MOST_DRAWN = 16
"""Configurations in the figure, those of the highest gains."""
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
    write_atomically(out / "report.html", page(found, config, svg))
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
    header, rows = _table(found)
    for row in rows:
        row[0] = f"**`{row[0]}`**" if row[0] == chosen.configuration else f"`{row[0]}`"
    retrieval = Configuration.parse(chosen.configuration).retrieval
    methods = f'"corag,corag(agent={config.out})"' + (f" --retrieval {retrieval}" if retrieval else "")
    return f"""\
# Tuned on {Path(config.data).resolve().name}

**{found.verdict}**

Chosen: `{chosen.configuration}`. {_router_line(found)}

```sh
corag ask "..." --agent {config.out}
corag evaluate --data {config.data} --methods {methods} --budget {config.budget} --out result.json
```

{_measured(found, config)}

{markdown_table(header, rows)}

{_gains(found)}

{_tested(found)}

## The dial

What is chosen as the price of tokens (of a whole budget) or of time (of a second) rises, on these questions;
`--prefer NAME` or `--prefer PRICE` sets it when the checkpoint is used.

{markdown_table(DIAL, dial_rows(found.curve))}
"""


def page(found: Tuned, config: TuneConfig, dial: str) -> str:
    """Return the page about a tuning, in HTML, given its dial as SVG."""
    chosen = found.chosen
    header, rows = _table(found)
    usage = found.usage(config.out)
    drawn = sorted(chosen.estimates, key=lambda name: -chosen.estimates[name].posterior)[:MOST_DRAWN]
    estimates = [chosen.estimates[name] for name in drawn]
    gains = interval_plot(
        drawn,
        [one.posterior for one in estimates],
        [(one.posterior - 1.96 * one.spread, one.posterior + 1.96 * one.spread) for one in estimates],
        f"gain in quality over {found.names[0]}",
        marked=drawn.index(chosen.configuration) if chosen.configuration in drawn else -1,
    )
    marked = "; orange: chosen" if chosen.configuration in drawn else ""
    lines: list[list[Cell | str]] = [
        [Cell(row[0], "text best" if row[0] == chosen.configuration else "text"), *row[1:]] for row in rows
    ]
    return render(
        title=f"Tuned on {Path(config.data).resolve().name}",
        verdict=found.verdict,
        summary=f"Chosen: {chosen.configuration}. {_router_line(found).replace('`', '')} {_measured(found, config)}",
        lead=Drawing("What each configuration gains", gains, f"Shrunken gains with 95% intervals{marked}.")
        if drawn
        else None,
        headline=Table("Each configuration, best first", header, lines, _gains(found).replace("`", "")),
        remarks=[_tested(found), f"{usage[0].upper()}{usage[1:]}"],
        folded=[
            Drawing("The dial", dial, "What is chosen as the price of tokens, or of time, rises."),
            Table("The dial in figures", DIAL, dial_rows(found.curve)),
        ],
    )


def _table(found: Tuned) -> tuple[list[str], list[list[str]]]:
    """Return headings, and a line for each configuration, the best first: in the order of what is chosen by."""
    shown = [name for name in COLUMNS if any(name in of_one for of_one in found.means.values())]
    rows = []
    for name in sorted(found.names, key=lambda name: -_gain(found, name)):
        figures = [_number(found.means[name].get(figure), 0 if figure == "cost_tokens" else 3) for figure in shown]
        one = found.chosen.estimates.get(name)
        gains = ["", "", ""] if one is None else [_signed(one.own), _signed(one.posterior), f"{one.weight:.0%}"]
        rows.append([name, *figures, *gains])
    return ["configuration", *(COLUMNS[name] for name in shown), "own gain", "shrunken gain", "own share"], rows


def _measured(found: Tuned, config: TuneConfig) -> str:
    answer = {"f1": "F1", "rougeL": "ROUGE-L"}[config.answer]
    sealed = f" {found.sealed} sealed questions were left out." if found.sealed else ""
    counted = "" if config.prefer == "quality" else f" Preferred: {config.prefer}."
    return (
        f"{found.questions} questions in {found.groups} groups that share documents, {config.budget} tokens of "
        f"context.{sealed} Quality: {answer} of the answer by {config.reader} and evidence recall, with weights "
        f"{1 - config.evidence_weight:g} and {config.evidence_weight:g}.{counted}"
    )


def _gains(found: Tuned) -> str:
    return (
        f"Own gain: mean difference in quality from `{found.names[0]}` on these questions. Shrunken gain: the same, "
        "weighed against what other kinds of questions say; the own share is the weight of these questions. The "
        "highest of many estimates is too high by chance: what is best is the shrunken gain less its standard "
        "deviation, and nothing is chosen where that is below 0."
    )


def _tested(found: Tuned) -> str:
    lead = found.chosen.lead
    power = "Every fold chose the default."
    if lead.visible:
        power = f"A lead of {lead.visible:.3f} would have been seen in four of five such tests."
    return (
        "On questions that took no part in the choice (cross-validation, questions that share documents together): "
        f"{lead}. {power}"
    )


def _gain(found: Tuned, name: str) -> float:
    one = found.chosen.estimates.get(name)
    return 0.0 if one is None else one.cautious


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
