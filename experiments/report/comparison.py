"""The page of a comparison: the decision, the figures of each method, and the questions on which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from corag.cli.page import Block, Figure, Page, Section, Table
from corag.errors import CoragError
from corag.text.data import DataFolder
from experiments.report.curves import CAPTION, Curves
from experiments.report.decision import Contest, bottleneck
from experiments.report.drawing import curves_plot, quality_plot
from experiments.report.measures import MEASURES, Measure
from experiments.report.results import Result

HEADLINE = ("answer_recall", "evidence", "kept", "cost_tokens", "latency_ms_median")
"""Measures of the first table beside those of the reader."""
HELD = ("answer_recall", "evidence")
"""What a context holds, in two measures neither of which may fall if a method is to be used in place of another."""
MOST_QUESTIONS = 500
"""Questions on which two methods differ that a page lists."""
MOST_COLUMNS = 8
"""More methods than this have a line each, and not a column."""
QUALITY = (
    "One line per method, one mark per budget. Up is better, left is cheaper. Bars: 95% intervals over resampled "
    "questions, if the rows of the questions are known."
)
"""Caption."""
COUNTS = {
    "queries_with_sentences": "measures of sentences: of the {} of {} questions with marked sentences",
    "queries_with_answer": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
}
"""How many questions the measures below the passage are of, if not of all."""


def result_page(results: Sequence[Result], *, title: str) -> Page:
    """Return the page of one set of questions, given a result a budget."""
    results = sorted(results, key=lambda result: result.budget)
    record, curves = results[0].record, Curves.of(results)
    pairs = [(result, *pair) for result in results if (pair := result.contest()) is not None and result.rows]
    sections = [
        Section("Each method, best first", [headline(results), *remarks(results)]),
        Section("Quality against tokens", _figures(results, curves)),
    ]
    if pairs:
        sections.append(Section("Question by question", [_pair(*one) for one in pairs]))
    if lines := statistics(results, curves):
        sections.append(Section("Statistics", lines))
    sections.append(Section("All measures", _all_measures(results)))
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    note = f"{results[0].questions} questions of split {record['split']}. Versions: {versions}"
    return Page(title, decision(results), sections, note)


def terminal_page(result: Result, title: str) -> Page:
    """Return what a terminal shows of one result: the decision, all measures, remarks, and statistics."""
    blocks: list[Block] = [measures_table(result, title), *remarks([result])]
    return Page("", decision([result]), [Section("", [*blocks, *statistics([result], Curves.of([result]))])])


def sets_page(results: Mapping[str, Sequence[Result]], *, title: str) -> Page:
    """Return the page of several sets of questions: means of their curves, and for each the decision and figures."""
    sections: list[Section] = []
    if (mean := Curves.of_sets(results.values())) is not None:
        sections.append(
            Section(f"Means of {mean.num_sets} sets", [*_curve_blocks(mean), mean.verdict()], anchor="means")
        )
    for name, of_set in results.items():
        curves = Curves.of(of_set)
        blocks: list[Block] = [decision(of_set), headline(of_set), *remarks(of_set)]
        blocks += [*_figures(of_set, curves), *statistics(of_set, curves), *_all_measures(of_set)]
        sections.append(Section(f"{name}: {of_set[0].questions} questions", blocks, anchor=name))
    return Page(title, _over_sets(results), sections)


def contests(results: Sequence[Result]) -> list[tuple[Result, Contest]]:
    """Return the challenger against the best other method at each budget; those without rows are left out."""
    found = []
    for result in results:
        main, pair = result.main_measure, result.contest()
        if pair is None or not result.rows or (gain := main.difference(*(result.rows[one] for one in pair))) is None:
            continue
        ours, theirs = (float(result.value(method, "cost_tokens") or 0) for method in pair)
        what = "evidence" if main.name in ("kept", "evidence_recall") else "answers"
        parts = {MEASURES[name].title: MEASURES[name].difference(*(result.rows[one] for one in pair)) for name in HELD}
        lost = {title: part.mean for title, part in parts.items() if part and part.is_certain and part.mean < 0}
        found.append((result, Contest(*pair, gain, (ours, theirs), what, main.title, lost=lost)))
    return found


def decision(results: Sequence[Result]) -> str:
    """Return what to do, a line each: about the challenger at each budget, what limits the answers, what is missing."""
    lines: list[str] = []
    found = contests(results)
    for result, contest in found:
        at = f"At {result.budget} tokens: " * (len(results) > 1)
        lines += [at + line for line in contest.decision()]
    if found:
        result, contest = found[-1]
        # What an answer of several sentences lacks to a ROUGE of 1 is mostly wording.
        read = result.answer_measure is not None and result.answer_measure.name != "rougeL"
        main = result.answer_measure if read and result.answer_measure is not None else result.main_measure
        lines += bottleneck(result.rows[contest.ours], main.name, main.title, budget=result.budget)
    return "\n".join(lines)


def _over_sets(results: Mapping[str, Sequence[Result]]) -> str:
    """Return the decision over several sets, each at its middle budget: a line for each outcome."""
    lines: dict[str, list[str]] = {}
    for name, of_set in results.items():
        if found := contests(of_set):
            result, contest = found[len(found) // 2]
            where = f"{name} at {result.budget} tokens ({contest.in_tokens})"
            lines.setdefault(f"**{contest.outcome}** {contest.what} from {contest.ours}", []).append(where)
    return "\n".join(f"{outcome}: {'; '.join(where)}." for outcome, where in lines.items())


def statistics(results: Sequence[Result], curves: Curves | None) -> list[str]:
    """Return the figures behind the decision, and what the curves say."""
    lines = [f"At {result.budget} tokens: {contest.statistics()}" for result, contest in contests(results)]
    return [*lines, *([] if curves is None or not (text := curves.verdict()) else [text])]


def _figures(results: Sequence[Result], curves: Curves | None) -> list[Block]:
    blocks = [] if curves is None else _curve_blocks(curves)
    if curves is None or len(results) > 1:
        main = results[0].main_measure
        blocks.append(Figure(quality_plot(results, main.name), main.title, QUALITY))
    return blocks


def _curve_blocks(curves: Curves) -> list[Block]:
    alike = f" of {curves.num_sets} sets, each counted alike" * (curves.num_sets > 1)
    figure = Figure(curves_plot(curves), "curves", f"{CAPTION}{len(curves.groups)} questions{alike}.")
    return [figure, Section("All points, and the gain at equal tokens", [curves.table()], folded=True)]


def _all_measures(results: Sequence[Result]) -> list[Section]:
    return [Section(f"All measures at {one.budget} tokens", [measures_table(one)], folded=True) for one in results]


def headline(results: Sequence[Result]) -> Table:
    """Return a line for each budget and method, best first, with the interval of the main measure."""
    main, answer = results[0].main_measure, results[0].answer_measure
    others = [one for one in results[0].measures if one != main and (one == answer or one.name in HEADLINE)]
    measures = [main, *others]
    rows = []
    for result in results:
        for index, method in enumerate(result.ranked(result.methods, main.name)):
            cells = [one.text(result.value(method, one.name)) for one in measures]
            if (interval := result.interval(method, main.name)) is not None:
                cells[0] += f" ({interval.low:.3f}\u00a0to\u00a0{interval.high:.3f})"
            rows.append(["" if index else str(result.budget), method, *cells])
    return Table(["budget", "method", *(one.title for one in measures)], rows, note=_of_reader(results[0]))


def _of_reader(result: Result) -> str:
    """Return what the measures of the table are of."""
    notes = []
    if result.main_measure.name == "kept":
        notes.append("Kept, which ranks: mean recall of answer words, gold passages and marked evidence.")
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
    known = {value for value in values if value is not None}
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
    return lines + ([f"no measures of answers: {record['unread']}"] if "unread" in record else [])


# --- Question by question ---


def _pair(result: Result, ours: str, theirs: str) -> Section:
    """Return the questions on which two methods differ, those won by most first."""
    main = result.main_measure
    pairs = [
        (row[main.name] - other[main.name], row, other)
        for row, other in zip(result.rows[ours], result.rows[theirs], strict=True)
        if row.get(main.name) is not None and other.get(main.name) is not None and row[main.name] != other[main.name]
    ]
    pairs.sort(key=lambda pair: -pair[0])
    num_won = sum(gain > 0 for gain, _, _ in pairs)
    texts: dict[str, str] = {}
    with suppress(CoragError):  # without the data folder, ids stand for questions
        texts = {query.id: query.question for query in DataFolder.open(str(result.record.get("data", ""))).queries}
    rows = [
        [texts.get(row["query"], row["query"]), f"{gain:+.2f}", row.get("answer", ""), other.get("answer", "")]
        for gain, row, other in pairs[:MOST_QUESTIONS]
    ]
    left_out = len(pairs) - len(rows)
    note = f"{left_out} more are in the rows beside the result." if left_out else ""
    counts = f"{num_won} won, {len(pairs) - num_won} lost, {result.questions - len(pairs)} alike"
    table = Table(["question", main.title, ours, theirs], rows, note=note)
    return Section(f"{result.budget} tokens: {counts}", [table], folded=True)
