"""Pages of results: methods with their differences on the same questions, all measures, and quality against tokens.

`corag report` puts several results that `corag evaluate` wrote on one page, or into one picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.storage import write_atomically
from corag.cli.console import say, stderr
from corag.cli.page import Figure, Page, Section, Table
from corag.errors import InputError
from experiments.data.config import comma_separated
from experiments.report.equal import HELD, Curves, needs_table, plot
from experiments.report.equal import curves as find_curves
from experiments.report.measures import Measure
from experiments.report.results import Result

HEADLINE = ("answer_recall", "evidence_recall", "context_recall", "cost_tokens", "latency_ms_median", "failed")
"""Measures of the first table beside those of the reader."""
MOST_COLUMNS = 8
"""A terminal leaves out all measures of more methods."""
CAPTION = (
    "Up is better, left is cheaper; a mark for each method and budget. Bars: 95% intervals over resampled documents."
)
MEANS = "Means of {} data sets, each counted alike, of the methods and budgets that all have."
LEAD = (
    "Lead: of the method in bold over each other one on the questions that both answered, with its 95% interval by "
    "paired bootstrap over groups of questions that share documents."
)
COUNTS = {
    "evidence_recall": "measures of evidence: of the {} of {} questions with gold passages",
    "answer_recall": "answer recall: of the {} of {} questions with an answer to be found",
    "sentence_recall": "measures of sentences: of the {} of {} questions with marked sentences",
    "answer_in_context": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
}
"""How many questions a measure is of, if not of all."""
ENDINGS = (".html", ".md", ".svg")
"""Of what `corag report` writes."""


@dataclass(frozen=True)
class ReportConfig:
    """Show results of `corag evaluate` together: several budgets, or several data folders, of one set of methods.

    Attributes:
        results: Result files, separated by commas; `--results` may be left out.
        out: File to write: a page (`.html`, `.md`), or quality against tokens alone (`.svg`), of several data folders
            their means.
    """

    results: str
    out: str = "report.html"

    def __post_init__(self) -> None:
        if Path(self.out).suffix not in ENDINGS:
            raise InputError(f"out is {self.out!r}; give it one of the endings {', '.join(ENDINGS)}")


def report(config: ReportConfig) -> None:
    """Write the page or the picture."""
    by_questions: dict[Any, list[Result]] = {}
    for file in comma_separated(config.results):
        result = Result.read(Path(file))
        by_questions.setdefault((result.name, result.record["data"], result.asked), []).append(result)
    sets: dict[str, Sequence[Result]] = {}
    for number, ((name, *_), of_set) in enumerate(by_questions.items(), start=1):
        sets[f"{name} ({number})" if name in sets else name] = of_set
    if not sets:
        raise InputError(f"--results is {config.results!r}; name files that corag evaluate --out wrote")
    out = Path(config.out)
    if out.suffix == ".svg":
        if not (found := held_by(sets)):
            raise InputError(f"--results {config.results} share no method and budget with gold or answers; give others")
        content = plot(found)
    else:
        page = results_page(sets)
        content = page.html() if out.suffix == ".html" else page.markdown()
    write_atomically(out, content)
    say(f"written to {config.out}", stderr())


def results_page(sets: Mapping[str, Sequence[Result]], *, curves: bool = True) -> Page:
    """Return the page of sets of questions, a result a budget each; of several sets, the means come first."""
    sets = {name: sorted(of_set, key=lambda result: result.budget) for name, of_set in sets.items()}
    [first, *_], several = sets.values(), len(sets) > 1
    record, sections = first[0].record, list[Section]()
    found = held_by(sets)
    if several and curves and found:
        sections.append(Section("All data sets", [_figure(found), MEANS.format(len(sets))], anchor="means"))
    if (pair := first[0].contest()) is not None and len({budget for _, budget in found}) > 1:
        others = {method: method for method, _ in found if method != pair[0]}
        sections.append(Section("Tokens for what others hold", [needs_table({"": found}, pair[0], others)]))
    for name, of_set in sets.items():
        own, heading = _sections(name, of_set, curves), f"{name}: {of_set[0].questions} questions"
        sections += [Section(heading, [_lead(of_set), *own], anchor=name)] if several else own
    note = f"{first[0].questions} questions of split {record['split']}. " * (not several)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return Page("Methods compared", "" if several else _lead(first), sections, f"{note}Versions: {versions}")


def held_by(sets: Mapping[str, Sequence[Result]]) -> Curves:
    """Return what each method holds and spends at each budget that all sets have, unless it failed on a question."""
    # Of results that have a method at one budget, such as those before and after a change, the last one counts.
    cells = {
        (name, method, result.budget): rows
        for name, of_set in sets.items()
        for result in of_set
        for method, rows in result.rows.items()
        if not result.failures(method)
    }
    return find_curves(
        [
            {**row, "data": name, "method": method, "budget": budget}
            for (name, method, budget), rows in cells.items()
            for row in rows
        ]
    )


def _figure(found: Curves) -> Figure:
    return Figure(plot(found), HELD, CAPTION)


def _sections(name: str, results: Sequence[Result], curves: bool) -> list[Section]:
    found = held_by({name: results}) if curves else {}
    folded = len(results) > 1 or len(results[0].methods) > MOST_COLUMNS
    return [
        Section("Each method, best first", [headline(results), *remarks(results)]),
        *([Section("Quality against tokens", [_figure(found)])] if found else []),
        *(Section(f"All measures at {one.budget} tokens", [measures_table(one)], folded) for one in results),
    ]


def _lead(results: Sequence[Result]) -> str:
    """Return in a line for each budget how the challenger compares with the best other method."""
    lines = []
    for result in results:
        pair, main = result.contest(), result.main_measure
        if pair is None or (gain := result.difference(main.name, *pair)) is None:
            continue
        verdict = "no significant difference"
        if gain.is_certain:
            verdict = f"significantly {'better' if gain.mean > 0 else 'worse'}"
        ours, theirs = (f"{float(result.value(one, 'cost_tokens') or 0):.0f}" for one in pair)
        lines.append(
            f"At {result.budget} tokens: **{pair[0]}** against {pair[1]}, {main.title}: {gain}, {verdict}; "
            f"{ours} and {theirs} tokens."
        )
    return "\n".join(lines)


def headline(results: Sequence[Result]) -> Table:
    """Return a line for each budget and method, best first: the main measures, and the challenger's lead over it."""
    main, answer = results[0].main_measure, results[0].answer_measure
    others = [one for one in results[0].measures if one != main and (one == answer or one.name in HEADLINE)]
    failed = any(result.failures(method) for result in results for method in result.methods)
    others = [one for one in others if one.name != "failed" or failed]
    rows = []
    for result in results:
        challenger, _ = result.contest() or ("", "")
        for index, method in enumerate(result.ranked(result.methods, main.name)):
            cells = [one.text(result.value(method, one.name)) for one in (main, *others)]
            if (interval := result.difference(main.name, method)) is not None:
                cells[0] += f" ({interval.low:.3f}\u00a0to\u00a0{interval.high:.3f})"
            gain = result.difference(main.name, challenger, method) if challenger not in ("", method) else None
            lead = ["-", "-"] if gain is None else [f"{gain}", f"{gain.p:.3g}"]
            name = f"**{method}**" if method == challenger else method
            rows.append(["" if index else str(result.budget), name, *cells, *lead])
    last = "Methods that failed on a question come last, whatever their figures on the others." * failed
    note = " ".join(text for text in (_of_reader(results[0]), LEAD, last) if text)
    headings = ["budget", "method", *(one.title for one in (main, *others)), "lead", "p"]
    return Table(headings, rows, f"{results[0].name}: {results[0].questions} questions", note)


def _of_reader(result: Result) -> str:
    """Return what the measures of the table are of."""
    notes = []
    if result.main_measure.name == "context_recall":
        notes.append("Context recall, which ranks: mean recall of answer words, gold passages and marked evidence.")
    if result.answer_measure is not None:
        reader = str(result.record.get("config", {}).get("reader", "the reader"))
        small = ", a small extractive reader, which answers no better from more text"
        notes.append(f"{result.answer_measure.title}: answers by {reader}{small * (reader == 'extractive')}.")
    return " ".join(notes)


def measures_table(result: Result) -> Table:
    """Return all measures, a column for each method."""
    return Table(["", *result.methods], [[one.title, *_cells(result, one)] for one in result.measures])


def _cells(result: Result, one: Measure) -> list[str]:
    values = [result.value(method, one.name) for method in result.methods]
    known = {result.value(method, one.name) for method in result.methods if not result.failures(method)} - {None}
    best = max(known, key=lambda value: one.direction * value) if one.direction and len(known) > 1 else None
    return [f"**{one.text(value)}**" if best is not None and value == best else one.text(value) for value in values]


def remarks(results: Sequence[Result]) -> list[str]:
    """Return what is known of the candidates, what went wrong, and what was left out."""
    record, lines = results[0].record, []
    retriever, total = record.get("retriever", {}), record["queries"]
    if retriever.get("evidence_recall") is not None:
        names = {"evidence_recall": "evidence recall", "full_evidence": "full evidence"}
        names |= {name: name for name in record.get("measures", ())}
        figures = ", ".join(f"{title} {retriever[name]:.3f}" for name, title in names.items())
        lines.append(f"The retriever's {retriever['candidates']:.4g} candidates: {figures}")
    rows = [row for of_method in results[0].rows.values() for row in of_method]
    for name, text in COUNTS.items():
        if 0 < (number := len({row["query"] for row in rows if row.get(name) is not None})) < total:
            lines.append(text.format(number, total))
    for result in results:
        at = f" at {result.budget} tokens" * (len(results) > 1)
        for method, row in result.methods.items():
            if row.get("failed"):
                failures = f"{method} failed on {row['failed']} of {result.questions} questions{at}"
                lines.append(f"{failures}; the first: {row.get('error')}")
    lines += [f"{name} is left out: {reason}" for name, reason in record.get("left_out", {}).items()]
    return lines + ([f"no measures of answers: {record['skip_reason']}"] if "skip_reason" in record else [])
