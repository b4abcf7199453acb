"""The card of a router: what it is, what it gains on questions that took no part, and what each kind gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from corag.selectors.corag.routing import FREE, Router
from experiments.protocol.leads import Lead
from experiments.routing.arrays import KindLabels
from experiments.routing.evaluate import PROTOCOLS, Held, ceiling
from experiments.run.tables import markdown_table
from experiments.tune.dial import DIAL, dial_rows

COMPARED = ("naive(reranker=bm25)", "top-tokens")
SHOWN = {"f1": "F1", "evidence_recall": "evidence recall", "full_evidence": "full evidence", "cost_tokens": "tokens"}


def figures(held: Held) -> dict[str, Any]:
    """Return what is recorded of one protocol."""
    lead, known = held.lead(), held.lead(held.known)
    return {
        "lead": _rounded(lead),
        "lead_each_kind_alike": round(held.by_kinds(held.gain(held.router)), 4),
        "kind_known": _rounded(known),
        "kind_known_each_kind_alike": round(held.by_kinds(held.gain(held.known)), 4),
        "oracle": round(ceiling(held), 4),
        "kind_told": round(float(held.told.mean()), 4),
        "unsure": round(float(held.unsure.mean()), 4),
        "departs": round(float((held.router != held.fixed).mean()), 4),
        "by_kind": {kind: _rounded(held.lead(kind=kind)) for kind in held.labels.kind_names},
        "router": _means(held, held.router),
        "fixed": _means(held, held.fixed),
        "said": f"questions that took no part gained {lead} over the best single configuration",
    }


def card(labels: KindLabels, router: Router, found: Mapping[str, Held], facts: Mapping[str, str]) -> str:
    """Return the card as Markdown."""
    default = labels.names[router.fallback(FREE)]
    shown = found.get("choosing", found["documents"])
    return f"""\
# A router over kinds of questions

Chooses a whole configuration (selector, reranker, unit) for each question by its kind, and `{default}` where the
question and its candidates are unlike all kinds that it knows.

```sh
corag ask "..." --agent path/to/this/folder --prefer tokens
corag evaluate --data DIR --methods "corag,corag(agent=path/to/this/folder)" --out result.json
```

## What each kind gets

Expected gain in quality over `{default}`, shrunk towards the mean over kinds; "as good" is the share of the known
questions on which it was at least as good.

{_kinds_table(labels, router)}

## Held-out questions

Gain in mean quality over the best single configuration, with its 95% interval and p (sign flip), over groups of
questions that share documents. "Kind known" is what the same router would gain if it were told each question's kind.

{_table(*_protocol_rows(found))}

By kind:

{_table(*_kind_rows(found))}

Figures on {PROTOCOLS["choosing"] if "choosing" in found else PROTOCOLS["documents"]}:

{_table(*_figure_rows(shown))}

## The dial

What is chosen for the same questions as the price of tokens (of a whole budget) or of time (of a second) rises;
`prefer` is a name, or a price of tokens. Quality counts no price. ![quality against tokens and time](dial.svg)

{markdown_table(DIAL, dial_rows(shown.curve()))}

## How it was made

{_table(["fact", "value"], [[name, value] for name, value in facts.items()])}
"""


def _kinds_table(labels: KindLabels, router: Router) -> str:
    rows = []
    for place, kind in enumerate(router.kinds):
        best = int(router.worth.utility(FREE)[place].argmax())
        gain = float(router.worth.quality[place, best] - router.worth.quality[place, router.fallback(FREE)])
        as_good = "" if router.as_good is None else f"{router.as_good[place, best]:.0%}"
        rows.append([kind.name, kind.about, str(kind.questions), f"`{labels.names[best]}`", f"{gain:+.3f}", as_good])
    return _table(["kind", "what it is", "questions", "best configuration", "gain", "as good"], rows)


def _protocol_rows(found: Mapping[str, Held]) -> tuple[list[str], list[list[str]]]:
    header = ["questions", "router", "kinds alike", "kind known", "oracle", "kind told", "unsure", "departs"]
    rows = []
    for protocol, held in found.items():
        one = figures(held)
        rows.append(
            [
                PROTOCOLS[protocol],
                str(held.lead()),
                f"{one['lead_each_kind_alike']:+.3f}",
                f"{one['kind_known']['mean']:+.3f}",
                f"{one['oracle']:+.3f}",
                "" if protocol == "kinds" else f"{one['kind_told']:.0%}",
                f"{one['unsure']:.0%}",
                f"{one['departs']:.0%}",
            ]
        )
    return header, rows


def _kind_rows(found: Mapping[str, Held]) -> tuple[list[str], list[list[str]]]:
    kinds = sorted({kind for held in found.values() for kind in held.labels.kind_names})
    rows = [
        [kind, *(str(held.lead(kind=kind)) if kind in held.labels.kind_names else "" for held in found.values())]
        for kind in kinds
    ]
    return ["kind", *({"kinds": "never seen"}.get(name, name) for name in found)], rows


def _figure_rows(held: Held) -> tuple[list[str], list[list[str]]]:
    names = held.labels.names
    methods = {"router": held.router, "best single configuration": held.fixed}
    methods |= {
        f"`{name}`": np.full(len(held.labels), names.index(name), dtype=np.int64) for name in COMPARED if name in names
    }
    rows = []
    for method, places in methods.items():
        means = held.means(places)
        row = [f"{means[name]:.{0 if name == 'cost_tokens' else 3}f}" if name in means else "" for name in SHOWN]
        rows.append([method, f"{means['quality']:.3f}", *row, f"{1000 * means['seconds']:.0f}"])
    return ["choice", "quality", *SHOWN.values(), "ms of a core"], rows


def _means(held: Held, places: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in held.means(places).items()}


def _rounded(lead: Lead) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(lead).items()}


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
