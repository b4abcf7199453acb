"""Pages of results: tables of methods, their differences on the same questions, and quality against tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corag.cli.page import Block, Figure, Page, Section, Table
from experiments.report.difference import Difference
from experiments.report.drawing import mean_points, plot, points
from experiments.report.equal import curves, needs_table
from experiments.report.measures import Measure
from experiments.report.results import Result

HEADLINE = ("answer_recall", "evidence_recall", "context_recall", "cost_tokens", "latency_ms_median", "failed")
"""Measures of the first table beside those of the reader."""
MOST_COLUMNS = 8
"""More methods than this have a line each, and not a column."""
CAPTION = (
    "Up is better, left is cheaper; a mark for each method and budget. Bars: 95% intervals over resampled questions."
)
MEANS = "Means of {} data sets, each counted alike, of the points that all have."
COUNTS = {
    "queries_with_sentences": "measures of sentences: of the {} of {} questions with marked sentences",
    "queries_with_answer": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
}
"""How many questions the measures below the passage are of, if not of all."""


def results_page(sets: Mapping[str, Sequence[Result]], *, title: str, curves: bool = True) -> Page:
    """Return the page of sets of questions, a result a budget each; of several sets, the means come first."""
    sets = {name: sorted(of_set, key=lambda result: result.budget) for name, of_set in sets.items()}
    [first, *_], several = sets.values(), len(sets) > 1
    main, record, sections = first[0].main_measure, first[0].record, list[Section]()
    if several and curves and (shared := mean_points(sets.values(), main.name)):
        figure = Figure(plot(shared, main.title), main.title, CAPTION)
        sections.append(Section("All data sets", [figure, MEANS.format(len(sets))], anchor="means"))
    sections += _needs(sets)
    for name, of_set in sets.items():
        own, heading = _sections(of_set, curves), f"{name}: {of_set[0].questions} questions"
        sections += [Section(heading, [_lead(of_set), *own], anchor=name)] if several else own
    note = f"{first[0].questions} questions of split {record['split']}. " * (not several)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return Page(title, "" if several else _lead(first), sections, f"{note}Versions: {versions}")


def terminal_page(result: Result, title: str) -> Page:
    """Return what a terminal shows of one result: all measures, remarks, and the differences."""
    blocks: list[Block] = [measures_table(result, title), *remarks([result]), *differences([result])]
    return Page("", _lead([result]), [Section("", blocks)])


def _sections(results: Sequence[Result], curves: bool) -> list[Section]:
    main = results[0].main_measure
    drawn = points(results, main.name) if curves else {}
    return [
        Section("Each method, best first", [headline(results), *remarks(results)]),
        *([Section("Differences on the same questions", found)] if (found := differences(results)) else []),
        *([Section("Quality against tokens", [Figure(plot(drawn, main.title), main.title, CAPTION)])] if drawn else []),
        *(Section(f"All measures at {one.budget} tokens", [measures_table(one)], folded=True) for one in results),
    ]


def _needs(sets: Mapping[str, Sequence[Result]]) -> list[Section]:
    """Return at how many tokens the challenger holds what others hold; nothing without rows at several budgets."""
    rows = [
        {**row, "data": name, "budget": result.budget, "method": method}
        for name, of_set in sets.items()
        for result in of_set
        for method, of_method in result.rows.items()
        for row in of_method
    ]
    pair = next(iter(sets.values()))[0].contest()
    if pair is None or len({row["budget"] for row in rows}) < 2:
        return []
    others = {row["method"]: row["method"] for row in rows if row["method"] != pair[0]}
    return [Section("Tokens for what others hold", [needs_table({"": curves(rows)}, pair[0], others)])]


def _lead(results: Sequence[Result]) -> str:
    """Return in a line for each budget how the challenger compares with the best other method."""
    lines = []
    for result in results:
        pair, main = result.contest(), result.main_measure
        if pair is None or (gain := result.difference(*pair, main.name)) is None:
            continue
        ours, theirs = (f"{float(result.value(one, 'cost_tokens') or 0):.0f}" for one in pair)
        lines.append(
            f"At {result.budget} tokens: **{pair[0]}** against {pair[1]}, {main.title}: {gain}, {_verdict(gain)}; "
            f"{ours} and {theirs} tokens."
        )
    return "\n".join(lines)


def _verdict(gain: Difference) -> str:
    if not gain.is_certain:
        return "no significant difference"
    return "significantly better" if gain.mean > 0 else "significantly worse"


def differences(results: Sequence[Result]) -> list[Block]:
    """Return a table of the challenger's paired differences with every other method; nothing without rows."""
    main, rows = results[0].main_measure, []
    for result in results:
        pair = result.contest()
        others = [] if pair is None else [one for one in result.ranked(result.methods, main.name) if one != pair[0]]
        for index, other in enumerate(others):
            assert pair is not None
            gain, tokens = (result.difference(pair[0], other, name) for name in (main.name, "cost_tokens"))
            if gain is not None and tokens is not None:
                figures = [str(gain), f"{gain.p:.3g}", str(gain.n), f"{tokens.mean:+.1f}"]
                rows.append(["" if index else str(result.budget), pair[0], other, *figures])
    headings = ["budget", "", "against", f"{main.title}, 95% interval", "p", "questions", "tokens"]
    note = "Paired bootstrap over groups of questions that share documents, of the questions that both answered."
    return [Table(headings, rows, note=note)] if rows else []


def headline(results: Sequence[Result]) -> Table:
    """Return a line for each budget and method, best first, with the interval of the main measure."""
    main, answer = results[0].main_measure, results[0].answer_measure
    others = [one for one in results[0].measures if one != main and (one == answer or one.name in HEADLINE)]
    failed = any(result.failures(method) for result in results for method in result.methods)
    others = [one for one in others if one.name != "failed" or failed]
    rows = []
    for result in results:
        for index, method in enumerate(result.ranked(result.methods, main.name)):
            cells = [one.text(result.value(method, one.name)) for one in (main, *others)]
            if (interval := result.interval(method, main.name)) is not None:
                cells[0] += f" ({interval.low:.3f}\u00a0to\u00a0{interval.high:.3f})"
            rows.append(["" if index else str(result.budget), method, *cells])
    last = "Methods that failed on a question come last, whatever their figures on the others." * failed
    note = " ".join(text for text in (_of_reader(results[0]), last) if text)
    return Table(["budget", "method", *(one.title for one in (main, *others))], rows, note=note)


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


def measures_table(result: Result, title: str = "") -> Table:
    """Return all measures, a column for each method; of many methods, a line for each, without measures' details."""
    by_method = len(result.methods) > MOST_COLUMNS or sum(map(len, result.methods)) > 20 * MOST_COLUMNS
    measures = [one for one in result.measures if one.brief or not by_method]
    columns = [_cells(result, one) for one in measures]
    if by_method:
        rows = [[method, *(column[index] for column in columns)] for index, method in enumerate(result.methods)]
        return Table(["", *(one.title for one in measures)], rows, title)
    rows = [[one.title, *column] for one, column in zip(measures, columns, strict=True)]
    return Table(["", *result.methods], rows, title)


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
    for name, text in COUNTS.items():
        if 0 < (number := record.get(name, 0)) < total:
            lines.append(text.format(number, total))
    for result in results:
        at = f" at {result.budget} tokens" * (len(results) > 1)
        for row in result.record["methods"]:
            if row.get("failed"):
                failures = f"{row['method']} failed on {row['failed']} of {result.questions} questions{at}"
                lines.append(f"{failures}; the first: {row.get('error')}")
    lines += [f"{name} is left out: {reason}" for name, reason in record.get("left_out", {}).items()]
    return lines + ([f"no measures of answers: {record['skip_reason']}"] if "skip_reason" in record else [])
