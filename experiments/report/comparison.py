"""The page of a comparison, and `corag report`, which writes it: who leads by how much, and on which questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.errors import CoragError, InputError
from corag.reply import Reply
from corag.text.data import DataFolder, Query, passage_at, passage_of
from experiments.data.config import comma_separated
from experiments.report.difference import Difference
from experiments.report.drawing import MAX_CHILDREN_DRAWN, quality_plot, tree_plot
from experiments.report.measures import MEASURES, OF_ANSWERS, Measure, Row
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
    return write_report(out, [Result.read(path) for path in paths], title=config.title)


def write_report(path: Path, results: Sequence[Result], *, title: str, reply: Reply | None = None) -> Path:
    """Write results of one set of questions, one a budget, as HTML, with the first figure as SVG beside it.

    Args:
        path: The page.
        results: What `corag evaluate` wrote.
        title: Heading of the page.
        reply: A reply by method `corag`, whose policy tree is drawn.
    """
    page = result_page(results, title=title, reply=reply)
    write_atomically(path, page.html())
    [drawn] = [one for one in page.sections[0].blocks if isinstance(one, Figure)]
    write_atomically(path.with_name(f"{path.stem}-quality.svg"), drawn.svg)
    return path


def result_page(results: Sequence[Result], *, title: str, reply: Reply | None = None) -> Page:
    """Return the page of one set of questions, a result a budget; see `write_report`."""
    results = sorted(results, key=lambda result: result.budget)
    contests = [(result, *pair) for result in results if (pair := result.contest()) is not None and result.rows]
    sections = [
        Section(f"{results[0].main_measure.title} against tokens", [quality_figure(results)]),
        Section("Each method, best first", [headline(results), *remarks(results)]),
    ]
    if contests:
        sections.append(Section("Question by question", [_contest(*one) for one in contests]))
    folded = [
        Section(f"Budget {result.budget} tokens", [measures_table(result, by_method=_are_many(result))], folded=True)
        for result in results
    ]
    if results[0].main_measure.name != "evidence_recall":
        recall = Section("Evidence recall against tokens", [quality_figure(results, "evidence_recall")], folded=True)
        folded.insert(0, recall)
    sections.append(Section("All measures", folded))
    if reply is not None:
        sections += _of_reply(reply)
    note = "Versions: " + ", ".join(f"{name} {version}" for name, version in results[0].record["versions"].items())
    about = f"{results[0].questions} questions of split {results[0].record['split']}. "
    return Page(title, verdict(results), sections, about + note)


def terminal_page(result: Result, title: str) -> Page:
    """Return what a terminal shows of one result: all measures, remarks, and the verdict."""
    table = measures_table(result, by_method=_are_many(result), title=title)
    return Page("", verdict([result]) if result.rows else "", [Section("", [table, *remarks([result])])])


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
        blocks += [verdict(of_set), Section("Figure", [quality_figure(of_set)], folded=True)]
        folded = [
            Section(
                f"All measures at {one.budget} tokens", [measures_table(one, by_method=_are_many(one))], folded=True
            )
            for one in of_set
        ]
        heading = f"{name}: {of_set[0].questions} questions"
        sections.append(Section(heading, [block for block in (*blocks, *folded) if block != ""], anchor=name))
    return Page(title, "", sections)


def quality_figure(results: Sequence[Result], name: str | None = None) -> Figure:
    """Return a measure against tokens; by default the main one."""
    name = name or results[0].main_measure.name
    return Figure(quality_plot(results, name), f"{MEASURES[name].title} {results[0].record.get('data', '')}", QUALITY)


def headline(results: Sequence[Result]) -> Table:
    """Return a line for each budget and method, best first, with the interval of the main measure."""
    main = results[0].main_measure
    names = [main.name, *(name for name in HEADLINE if name != main.name)]
    measures = [one for one in results[0].measures if one.name in names]
    measures.sort(key=lambda one: names.index(one.name))
    rows = []
    for result in results:
        ranked = sorted(
            result.methods, key=lambda one: -(value if (value := result.value(one, main.name)) is not None else -1)
        )
        for index, method in enumerate(ranked):
            cells = [one.text(result.value(method, one.name)) for one in measures]
            if (interval := result.interval(method, main.name)) is not None:
                cells[0] += f" ({interval.low:.3f}\u00a0to\u00a0{interval.high:.3f})"
            rows.append(["" if index else str(result.budget), method, *cells])
    return Table(["budget", "method", *(one.title for one in measures)], rows)


def measures_table(result: Result, *, by_method: bool = False, title: str = "") -> Table:
    """Return all measures: a column for each method, or with `by_method` a line for each, without measures' details."""
    measures = [
        one
        for one in result.measures
        if (one.brief or not by_method)
        and (one.name not in OF_ANSWERS or any(result.value(method, one.name) is not None for method in result.methods))
    ]
    columns = [_cells(result, one) for one in measures]
    if by_method:
        rows = [[method, *(column[index] for column in columns)] for index, method in enumerate(result.methods)]
        return Table(["", *(one.title for one in measures)], rows, title)
    rows = [[one.title, *column] for one, column in zip(measures, columns, strict=True)]
    return Table(["", *result.methods], rows, title)


def _are_many(result: Result) -> bool:
    return len(result.methods) > MOST_COLUMNS or sum(map(len, result.methods)) > 20 * MOST_COLUMNS


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
        baseline = result.best(baselines, "tes")
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
    main = results[0].main_measure
    contests = [(result, *pair) for result in results if (pair := result.contest()) is not None]
    if not contests:
        return ""
    differences = [
        main.difference(result.rows[ours], result.rows[theirs]) if result.rows else None
        for result, ours, theirs in contests
    ]
    certain = [(one[0].budget, gap) for one, gap in zip(contests, differences, strict=True) if gap and gap.is_certain]
    if not any(differences):
        judgement = "differs from the best other method by what may be chance, as the rows of questions are missing"
    elif not certain:
        judgement = "and the best other method differ by no more than chance"
    else:
        budgets = {
            "ahead of": [str(budget) for budget, gap in certain if gap.mean > 0],
            "behind": [str(budget) for budget, gap in certain if gap.mean < 0],
        }
        parts = [f"{word} the best other method at {' and '.join(of)} tokens" for word, of in budgets.items() if of]
        judgement = f"is {', '.join(parts)}, beyond chance"
    number = results[0].questions
    details = "; ".join(_said(*one, gap, main) for one, gap in zip(contests, differences, strict=True))
    return f"{contests[0][1]} {judgement} ({main.title}, {number} question{'s' * (number != 1)}): {details}."


def _said(result: Result, ours: str, theirs: str, gap: Difference | None, main: Measure) -> str:
    text = f"{result.value(ours, main.name) - result.value(theirs, main.name):+.3f}" if gap is None else str(gap)
    tokens = [result.value(method, "cost_tokens") for method in (ours, theirs)]
    share = f" with {tokens[0] / tokens[1]:.0%} of its tokens" if all(tokens) else ""
    return f"{text} against {theirs} at {result.budget} tokens{share}"


def remarks(results: Sequence[Result]) -> list[str]:
    """Return what is known of the candidates, what went wrong, once for each method, and what was left out."""
    record = results[0].record
    failures = {
        row["method"]: f"{row['method']} failed on {row['failed']} of {result.questions} questions"
        + (f" at {result.budget} tokens" if len(results) > 1 else "")
        + (f"; the first: {row['error']}" if row.get("error") else "")
        for result in results
        for row in result.record["methods"]
        if row.get("failed")
    }
    left_out = [f"{name} is left out: {reason}" for name, reason in record.get("left_out", {}).items()]
    unread = [f"no measures of answers: {record['unread']}"] if "unread" in record else []
    ceilings = [
        f"evidence that is among the candidates and fits {result.budget} tokens: {result.record['ceiling']:.3f}"
        for result in results
        if result.record.get("ceiling") is not None
    ]
    return [*_of_retriever(record), *ceilings, *_of_support(record), *failures.values(), *left_out, *unread]


def _of_retriever(record: Mapping[str, Any]) -> list[str]:
    """Return what is known of the candidates' ranking."""
    retriever = record.get("retriever", {})
    if retriever.get("evidence_recall") is None:
        return []
    names = {"evidence_recall": "evidence recall", "full_evidence": "full evidence"}
    names |= {name: name for name in record.get("measures", ())}
    shown = ", ".join(f"{names[name]} {retriever[name]:.3f}" for name in names)
    return [f"the retriever's {retriever['candidates']:.1f} candidates: {shown}"]


def _of_support(record: Mapping[str, Any]) -> list[str]:
    """Return how many questions the measures below the passage are of, if not of all."""
    texts = {
        "queries_with_sentences": "measures of sentences: of the {} of {} questions with marked sentences",
        "queries_with_answer": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
    }
    total = record["queries"]
    known = {text: record.get(name, 0) for name, text in texts.items()}
    return [text.format(number, total) for text, number in known.items() if 0 < number < total]


# --- Question by question ---


def _contest(result: Result, ours: str, theirs: str) -> Section:
    """Return the questions on which two methods differ, the largest differences with their contexts."""
    name = result.main_measure.name
    pairs = [
        pair
        for pair in zip(result.rows[ours], result.rows[theirs], strict=True)
        if all(row.get(name) is not None for row in pair) and pair[0][name] != pair[1][name]
    ]
    pairs.sort(key=lambda pair: pair[1][name] - pair[0][name])
    won = [pair for pair in pairs if pair[0][name] > pair[1][name]]
    lost = pairs[len(won) :][::-1]
    texts = _Texts(str(result.record.get("data", "")))
    title = f"{result.budget} tokens: {len(won)} won, {len(lost)} lost, {result.questions - len(pairs)} alike"
    blocks: list[Block] = [
        Section(
            f"**{word}** {texts.question(one)} ({one[name] - other[name]:+.2f})",
            texts.sides(result, {ours: one, theirs: other}),
            folded=True,
        )
        for word, part in (("Won", won), ("Lost", lost))
        for one, other in part[:MOST_CASES]
        if texts.folder is not None
    ]
    rows = [
        [
            texts.question(one),
            f"{one[name] - other[name]:+.2f}",
            str(one.get("answer", "")),
            str(other.get("answer", "")),
        ]
        for one, other in pairs[:MOST_QUESTIONS]
    ]
    left_out = len(pairs) - len(rows)
    note = f"{left_out} more are in the rows beside the result." if left_out else ""
    table = Table(["question", result.main_measure.title, ours, theirs], rows, note=note)
    return Section(title, [*blocks, Section("All questions on which they differ", [table], folded=True)])


class _Texts:
    """Questions and chunks of a data folder; without the folder, ids stand for questions."""

    def __init__(self, data: str) -> None:
        self.folder: DataFolder | None = None
        self._queries: dict[str, Query] = {}
        try:
            self.folder = DataFolder.open(data)
            self._queries = {query.id: query for query in self.folder.queries}
        except CoragError:
            self.folder = None

    def question(self, row: Row) -> str:
        """Return the question of a row."""
        query = self._queries.get(str(row["query"]))
        return str(row["query"]) if query is None else query.question

    def sides(self, result: Result, rows: Mapping[str, Row]) -> list[Block]:
        """Return the reference answer, and the contexts of methods side by side, given a row of each."""
        query, main = self._queries.get(str(next(iter(rows.values()))["query"])), result.main_measure
        reference = [f"Reference: **{query.answers[0]}**"] if query is not None and query.answers else []
        return [*reference, tuple(self._side(name, row, query, main) for name, row in rows.items())]

    def _side(self, method: str, row: Row, query: Query | None, main: Measure) -> Column:
        heading = f"{method}: {main.title} {row[main.name]:.2f}, {row.get('cost_tokens', 0)} tokens"
        passages = [self._passage(name, query) for name in row.get("ids", ())]
        return Column(heading, str(row.get("answer") or "no answer"), passages)

    def _passage(self, name: str, query: Query | None) -> ShownPassage:
        assert self.folder is not None
        documents = self.folder.documents
        chunk = passage_at(name, documents)
        text = (name if chunk is None else chunk.text)[:MOST_CHARACTERS]
        gold = set(() if query is None else query.gold)
        passages = {passage_of(one, documents) or one for one in gold}
        is_evidence = name in gold or (passage_of(name, documents) or name) in passages
        answers = () if query is None else [one.strip() for one in query.answers if len(one.strip()) > 1]
        return ShownPassage(text, is_evidence, next((one for one in answers if one.lower() in text.lower()), ""))


def _of_reply(reply: Reply) -> Iterator[Section]:
    """Yield the policy tree of a reply, and the reply."""
    result = reply.selection.trace.result
    if result is not None and result.tree is not None:
        yield Section("One policy tree", [Figure(tree_plot(reply), "tree", TREE)])
    chunks = [ShownPassage(chunk.text) for chunk in reply.selection.chunks]
    cost = f"Chosen, in this order ({reply.selection.cost_tokens} of {reply.selection.budget_tokens} tokens)"
    column = Column(cost, reply.answer.text, chunks)
    yield Section("The question whose tree is drawn", [reply.question, (column,)])
