"""The page of a comparison, and `corag report`, which writes it: who leads by how much, and on which questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.errors import CoragError, InputError
from corag.reply import Reply
from corag.text.data import DataFolder, Query, passage_at, passage_of
from experiments.data.config import comma_separated
from experiments.report.drawing import MAX_CHILDREN_DRAWN, quality_plot, tree_plot
from experiments.report.measures import MEASURES, Measure, Row
from experiments.report.page import Block, Column, Figure, Page, Section, ShownPassage, Table
from experiments.report.results import Result
from experiments.run.journal import PAGE, output_file, write_atomically

HEADLINE = ("evidence_recall", "cost_tokens", "latency_ms_median")
"""Measures of the first table beside the main one."""
MOST_CASES, MOST_QUESTIONS, MOST_CHARACTERS = 6, 500, 1200
"""Wins and losses with their contexts, questions in the list, and characters of a chunk that a page shows."""
MOST_COLUMNS = 8
"""More methods than this have a line each, and not a column."""
QUALITY = (
    "One line per method, one mark per budget. Up is better, left is cheaper. Bars: 95% intervals over resampled "
    "questions, if the rows of the questions are known."
)
TREE = (
    "Each node adds one candidate (numbered by the retriever's rank) to its parent's order; below it the value on the "
    "search's scale, on which this question's single candidates span 0 to 1. Orange: the chosen order. Of each node's "
    f"children the best {MAX_CHILDREN_DRAWN} are drawn."
)
"""Captions."""
COUNTS = {
    "queries_with_sentences": "measures of sentences: of the {} of {} questions with marked sentences",
    "queries_with_answer": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
}
"""How many questions the measures below the passage are of, if not of all."""


@dataclass(frozen=True)
class ReportConfig:
    """Draw one HTML report from results of `corag evaluate`.

    Attributes:
        results: JSON files of `corag evaluate --out`, separated by commas; one per budget makes a curve.
        out: HTML file to write.
        title: Heading of the report.
    """

    results: str
    out: str = "runs/report.html"
    title: str = "CORAG: chunks chosen under a token budget"


def report(config: ReportConfig) -> Path:
    """Draw the report that a config describes; return its path."""
    if not (paths := [Path(name) for name in comma_separated(config.results)]):
        raise InputError("results is empty; give at least one JSON file that `corag evaluate --out` wrote")
    if len(set(paths)) < len(paths):
        raise InputError(f"results is {config.results!r}; give each file once")
    out = output_file(config.out, PAGE)
    write_atomically(out, result_page([Result.read(path) for path in paths], title=config.title).html())
    return out


def result_page(results: Sequence[Result], *, title: str, reply: Reply | None = None) -> Page:
    """Return the page of one set of questions.

    Args:
        results: What `corag evaluate` wrote, a result a budget.
        title: Heading of the page.
        reply: A reply by method `corag`, whose policy tree is drawn.
    """
    results = sorted(results, key=lambda result: result.budget)
    record, main = results[0].record, results[0].main_measure
    contests = [(result, *pair) for result in results if (pair := result.contest()) is not None and result.rows]
    sections = [
        Section(f"{main.title} against tokens", [quality_figure(results)]),
        Section("Each method, best first", [headline(results), *remarks(results)]),
    ]
    if contests:
        sections.append(Section("Question by question", [_contest(*one) for one in contests]))
    folded = _all_measures(results)
    if main.name != "evidence_recall":
        recall = Section("Evidence recall against tokens", [quality_figure(results, "evidence_recall")], folded=True)
        folded.insert(0, recall)
    sections.append(Section("All measures", folded))
    if reply is not None:
        sections += _of_reply(reply)
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    note = f"{results[0].questions} questions of split {record['split']}. Versions: {versions}"
    return Page(title, verdict(results), sections, note)


def terminal_page(result: Result, title: str) -> Page:
    """Return what a terminal shows of one result: all measures, remarks, and the verdict."""
    blocks: list[Block] = [measures_table(result, title), *remarks([result])]
    return Page("", verdict([result]) if result.rows else "", [Section("", blocks)])


def sets_page(results: Mapping[str, Sequence[Result]], *, title: str, baselines: Sequence[str] = ()) -> Page:
    """Return the page of several sets of questions: for each a figure, a table and a verdict.

    Args:
        results: For each set of questions, by name, a result a budget.
        title: Heading of the page.
        baselines: Methods that all others are compared with; of several, the one with the highest TES counts.
    """
    sections = []
    for name, of_set in results.items():
        blocks: list[Block] = [headline(of_set), *remarks(of_set)]
        if baselines:
            blocks.append(gains_table(of_set, baselines))
        if text := verdict(of_set):
            blocks.append(text)
        blocks += [Section("Figure", [quality_figure(of_set)], folded=True), *_all_measures(of_set)]
        sections.append(Section(f"{name}: {of_set[0].questions} questions", blocks, anchor=name))
    return Page(title, "", sections)


def _all_measures(results: Sequence[Result]) -> list[Section]:
    return [Section(f"All measures at {one.budget} tokens", [measures_table(one)], folded=True) for one in results]


def quality_figure(results: Sequence[Result], name: str | None = None) -> Figure:
    """Return a measure against tokens; by default the main one."""
    name = name or results[0].main_measure.name
    return Figure(quality_plot(results, name), f"{MEASURES[name].title} {results[0].record.get('data', '')}", QUALITY)


def headline(results: Sequence[Result]) -> Table:
    """Return a line for each budget and method, best first, with the interval of the main measure."""
    main = results[0].main_measure
    measures = [main, *(MEASURES[name] for name in HEADLINE if name != main.name)]
    measures = [one for one in measures if one in results[0].measures]
    rows = []
    for result in results:
        for index, method in enumerate(result.ranked(result.methods, main.name)):
            cells = [one.text(result.value(method, one.name)) for one in measures]
            if (interval := result.interval(method, main.name)) is not None:
                cells[0] += f" ({interval.low:.3f}\u00a0to\u00a0{interval.high:.3f})"
            rows.append(["" if index else str(result.budget), method, *cells])
    return Table(["budget", "method", *(one.title for one in measures)], rows)


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
    """Return a measure of each method, the best in bold."""
    values = [result.value(method, one.name) for method in result.methods]
    known = {value for value in values if value is not None}
    best = max(known, key=lambda value: one.direction * value) if one.direction and len(known) > 1 else None
    return [f"**{one.text(value)}**" if best is not None and value == best else one.text(value) for value in values]


def gains_table(results: Sequence[Result], baselines: Sequence[str]) -> Table:
    """Return what each other method gains over the best baseline, at each budget, question by question."""
    measures = [MEASURES[name] for name in ("full_evidence", "f1", "tes", "recall_tes", "cost_tokens")]
    rows = []
    for result in results:
        baseline = result.ranked(baselines, "tes")[0]
        for method in result.methods:
            if method in baselines or not result.rows:
                continue
            gains = [one.difference(result.rows[method], result.rows[baseline]) for one in measures]
            rows.append([str(result.budget), method, baseline, *("-" if one is None else str(one) for one in gains)])
    return Table(
        ["budget", "method", "against", *(one.title for one in measures)],
        rows,
        note="What one method gains over another, question by question, with 95% intervals by bootstrap.",
    )


def verdict(results: Sequence[Result]) -> str:
    """Return a sentence on the challenger against the best other method at each budget; empty without two methods."""
    main, number = results[0].main_measure, results[0].questions
    contests = [(result, *pair) for result in results if (pair := result.contest()) is not None]
    if not contests:
        return ""
    details, certain, known = [], [], False
    for result, ours, theirs in contests:
        gap = main.difference(result.rows[ours], result.rows[theirs]) if result.rows else None
        known |= gap is not None
        if gap is not None and gap.is_certain:
            certain.append((result.budget, gap.mean))
        text = f"{result.value(ours, main.name) - result.value(theirs, main.name):+.3f}" if gap is None else str(gap)
        tokens = [result.value(method, "cost_tokens") for method in (ours, theirs)]
        share = f" with {tokens[0] / tokens[1]:.0%} of its tokens" if all(tokens) else ""
        details.append(f"{text} against {theirs} at {result.budget} tokens{share}")
    if not known:
        judgement = "differs from the best other method by what may be chance, as the rows of questions are missing"
    elif not certain:
        judgement = "and the best other method differ by no more than chance"
    else:
        budgets = {
            "ahead of": [str(budget) for budget, mean in certain if mean > 0],
            "behind": [str(budget) for budget, mean in certain if mean < 0],
        }
        parts = [f"{word} the best other method at {' and '.join(of)} tokens" for word, of in budgets.items() if of]
        judgement = f"is {', '.join(parts)}, beyond chance"
    questions = f"{number} question{'s' * (number != 1)}"
    return f"{contests[0][1]} {judgement} ({main.title}, {questions}): {'; '.join(details)}."


def remarks(results: Sequence[Result]) -> list[str]:
    """Return what is known of the candidates, what went wrong, once for each method, and what was left out."""
    record, lines = results[0].record, []
    retriever, total = record.get("retriever", {}), record["queries"]
    if retriever.get("evidence_recall") is not None:
        names = {"evidence_recall": "evidence recall", "full_evidence": "full evidence"}
        names |= {name: name for name in record.get("measures", ())}
        figures = ", ".join(f"{title} {retriever[name]:.3f}" for name, title in names.items())
        lines.append(f"the retriever's {retriever['candidates']:.1f} candidates: {figures}")
    lines += [
        f"evidence that is among the candidates and fits {result.budget} tokens: {result.record['ceiling']:.3f}"
        for result in results
        if result.record.get("ceiling") is not None
    ]
    for name, text in COUNTS.items():
        if 0 < (number := record.get(name, 0)) < total:
            lines.append(text.format(number, total))
    failures = {
        row["method"]: f"{row['method']} failed on {row['failed']} of {result.questions} questions"
        + (f" at {result.budget} tokens" if len(results) > 1 else "")
        + (f"; the first: {row['error']}" if row.get("error") else "")
        for result in results
        for row in result.record["methods"]
        if row.get("failed")
    }
    lines += failures.values()
    lines += [f"{name} is left out: {reason}" for name, reason in record.get("left_out", {}).items()]
    return lines + ([f"no measures of answers: {record['unread']}"] if "unread" in record else [])


# --- Question by question ---


def _contest(result: Result, ours: str, theirs: str) -> Section:
    """Return the questions on which two methods differ, the largest differences with their contexts."""
    main = result.main_measure
    name = main.name
    pairs = [
        pair
        for pair in zip(result.rows[ours], result.rows[theirs], strict=True)
        if all(row.get(name) is not None for row in pair) and pair[0][name] != pair[1][name]
    ]
    pairs.sort(key=lambda pair: pair[1][name] - pair[0][name])
    num_won = sum(pair[0][name] > pair[1][name] for pair in pairs)
    try:
        folder = DataFolder.open(str(result.record.get("data", "")))
        queries = {query.id: query for query in folder.queries}
    except CoragError:
        # Without the data folder, ids stand for questions.
        folder, queries = None, {}

    def question(row: Row) -> str:
        return queries[row["query"]].question if row["query"] in queries else str(row["query"])

    blocks: list[Block] = []
    for word, part in (("Won", pairs[:num_won]), ("Lost", pairs[num_won:][::-1])):
        for one, other in part[:MOST_CASES]:
            query = queries.get(one["query"])
            if folder is None or query is None:
                continue
            reference = [f"Reference: **{query.answers[0]}**"] if query.answers else []
            sides = tuple(_side(method, row, query, folder, main) for method, row in ((ours, one), (theirs, other)))
            heading = f"**{word}** {query.question} ({one[name] - other[name]:+.2f})"
            blocks.append(Section(heading, [*reference, sides], folded=True))
    rows = [
        [question(one), f"{one[name] - other[name]:+.2f}", str(one.get("answer", "")), str(other.get("answer", ""))]
        for one, other in pairs[:MOST_QUESTIONS]
    ]
    left_out = len(pairs) - len(rows)
    note = f"{left_out} more are in the rows beside the result." if left_out else ""
    table = Table(["question", main.title, ours, theirs], rows, note=note)
    counts = f"{num_won} won, {len(pairs) - num_won} lost, {result.questions - len(pairs)} alike"
    listed = Section("All questions on which they differ", [table], folded=True)
    return Section(f"{result.budget} tokens: {counts}", [*blocks, listed])


def _side(method: str, row: Row, query: Query, folder: DataFolder, main: Measure) -> Column:
    """Return the context of a method as a column, with evidence and answer marked."""
    documents = folder.documents
    gold = {*query.gold, *(passage_of(entry, documents) or entry for entry in query.gold)}
    passages = []
    for name in row.get("ids", ()):
        chunk = passage_at(name, documents)
        text = (name if chunk is None else chunk.text)[:MOST_CHARACTERS]
        answers = [answer for one in query.answers if (answer := one.strip()).lower() in text.lower()]
        is_evidence = not gold.isdisjoint((name, passage_of(name, documents)))
        passages.append(ShownPassage(text, is_evidence, next(iter(answers), "")))
    heading = f"{method}: {main.title} {row[main.name]:.2f}, {row.get('cost_tokens', 0)} tokens"
    return Column(heading, str(row.get("answer") or "no answer"), passages)


def _of_reply(reply: Reply) -> list[Section]:
    """Return the policy tree of a reply, and the reply."""
    selection, result = reply.selection, reply.selection.trace.result
    has_tree = result is not None and result.tree is not None
    cost = f"Chosen, in this order ({selection.cost_tokens} of {selection.budget_tokens} tokens)"
    column = Column(cost, reply.answer.text, [ShownPassage(chunk.text) for chunk in selection.chunks])
    return [
        *([Section("One policy tree", [Figure(tree_plot(reply), "tree", TREE)])] if has_tree else []),
        Section("The question whose tree is drawn", [reply.question, (column,)]),
    ]
