"""How the figures of a comparison are shown: on a terminal, as Markdown, and in a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.cli.console import say, stdout, table
from corag.errors import DataError
from experiments.evaluation.averages import OF_ANSWERS
from experiments.run.journal import write_atomically

Result = Mapping[str, Any]
"""What `corag evaluate --out` writes."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How one figure of a method is shown."""

    heading: str
    short: str = ""  # its name where each method has a line; empty where it is left out there
    digits: int = 3
    better: int = 1  # -1 where less is better; 0 for neither: the values of two rerankers do not compare
    optional: bool = False  # some results lack it
    of_some: bool = False  # of some data sets or methods; left out where no method has a value

    def text(self, value: float | None) -> str:
        """Return a value as tables show it; a dash for one that no question has."""
        if value is None:
            return "-"
        return f"{value:.{self.digits}f}" if isinstance(value, float) else str(value)


FIGURES = {
    "rouge1": Figure("ROUGE-1"),
    "rouge2": Figure("ROUGE-2"),
    "rougeL": Figure("ROUGE-L", "R-L"),
    "f1": Figure("F1", "F1"),
    "em": Figure("exact match"),
    "evidence_recall": Figure("evidence recall", "recall"),
    "evidence_precision": Figure("evidence precision", "prec."),
    "full_evidence": Figure("full evidence", "full"),
    "cost_tokens": Figure("tokens", "tokens", digits=1, better=-1),
    "chunks": Figure("chunks", "chunks", digits=2, better=0),
    "over_budget": Figure("over budget", better=-1),
    "value": Figure("value", better=0),
    "orders_scored": Figure("orders scored", "orders", digits=1, better=-1),
    "latency_ms_median": Figure("ms, median", "ms", digits=1, better=-1),
    "latency_ms_p95": Figure("ms, 95%", "ms 95%", digits=1, better=-1),
    "sub_em": Figure("substring match", "subEM", optional=True),
    "context_recall": Figure("context recall", "context", optional=True),
    "sentence_recall": Figure("sentence recall", "sent.", optional=True, of_some=True),
    "full_sentences": Figure("full sentences", "full s.", optional=True, of_some=True),
    "answer_in_context": Figure("answer in context", "in ctx", optional=True, of_some=True),
    "tes": Figure("TES", "TES", optional=True),
    "recall_tes": Figure("TES of recall", "TES r.", optional=True),
    "diff_k": Figure("diff-k", "diff-k", digits=2, better=-1, optional=True),
    "redundancy": Figure("redundancy", "redund.", better=-1, optional=True),
    "change_in_tokens": Figure("change in tokens, %", "CiT %", digits=0, better=-1, optional=True, of_some=True),
    "answer_similarity": Figure("answer similarity", "CosSim", optional=True, of_some=True),
    "judge": Figure("judged grade", "judge", optional=True),
    "answer_relevancy": Figure("answer relevancy", "ans. rel.", optional=True),
    "contextual_relevancy": Figure("contextual relevancy", "ctx. rel.", optional=True),
    "faithfulness": Figure("faithfulness", "faithful", optional=True),
    "hallucination": Figure("hallucination", "halluc.", better=-1, optional=True),
    "judge_unusable": Figure("unusable judgements", better=-1, optional=True),
    "accuracy": Figure("accuracy", "acc.", optional=True),
    "balanced_accuracy": Figure("balanced accuracy", "bal. acc.", optional=True),
    "verdict_unusable": Figure("unusable verdicts", better=-1, optional=True),
    "failed": Figure("failed", "failed", better=-1, optional=True),
}
BRIEF = (
    "full_evidence", "evidence_recall", "evidence_precision", "full_sentences", "answer_in_context", "cost_tokens",
    "chunks", "f1", "em", "judge", "answer_relevancy", "contextual_relevancy", "faithfulness",
    "hallucination", "accuracy", "balanced_accuracy", "tes", "diff_k", "latency_ms_median",
)  # fmt: skip
"""Figures of the Markdown tables, where the budgets stand side by side in a cell."""
MOST_COLUMNS = 8
"""More methods than this stand below each other."""
BEGIN, END = "<!-- table -->", "<!-- /table -->"


def figures_of(result: Result) -> dict[str, Figure]:
    """Return the figures that every method of a result has, `of_some` where there is a value."""
    measures = {name: Figure(name, name) for name in result.get("measures", ())}
    return {
        name: figure
        for name, figure in (FIGURES | measures).items()
        if all(name in row for row in result["methods"])
        and (not figure.of_some or any(row[name] is not None for row in result["methods"]))
    }


def figure_of(row: Mapping[str, Any], name: str, num_queries: int) -> Any:
    """Return a figure of a method; None where it is missing, and where the method failed on every question."""
    return None if name != "failed" and row.get("failed", 0) >= num_queries else row.get(name)


def show(result: Result, title: str) -> None:
    """Print a result: a column for each method, or a line where they do not fit; then what went wrong.

    Where nothing was read, figures of answers are left out.
    """
    console, methods = stdout(), result["methods"]
    figures = {
        name: figure
        for name, figure in figures_of(result).items()
        if name not in OF_ANSWERS or any(row[name] is not None for row in methods)
    }
    if len(methods) > MOST_COLUMNS or not _fits(console.width, [row["method"] for row in methods]):
        columns = {"": "", **{name: figure.short for name, figure in figures.items() if figure.short}}
        lines = [{"": row["method"], **_texts(row, figures, result)} for row in methods]
        # Cells that are cut or folded cannot be read; a line that is too long can be scrolled.
        cells = [max(len(text), *(len(line[name]) for line in lines)) for name, text in columns.items()]
        console.width = max(console.width, 1 + sum(cells) + 3 * len(cells))
    else:
        columns = {"": ""} | {row["method"]: row["method"] for row in methods}
        texts = {row["method"]: _texts(row, figures, result) for row in methods}
        lines = [
            {"": figure.heading, **{method: texts[method][name] for method in texts}}
            for name, figure in figures.items()
        ]
    console.print(table(lines, columns, title=title))
    for remark in remarks([result]):
        say(remark)


def _fits(width: int, methods: Sequence[str]) -> bool:
    """Return whether columns of these headings fit, each with at least room for a figure and its frame."""
    names = max(len(figure.heading) for figure in FIGURES.values())
    return sum(max(len(text), 6) + 3 for text in (" " * names, *methods)) < width


def _texts(row: Mapping[str, Any], figures: Mapping[str, Figure], result: Result) -> dict[str, str]:
    return {name: figure.text(figure_of(row, name, result["queries"])) for name, figure in figures.items()}


def remarks(results: Sequence[Result]) -> list[str]:
    """Return what is known of the candidates, what went wrong, once for each method, and what was left out."""
    failures = {
        row["method"]: f"{row['method']} failed on {row['failed']} of {result['queries']} questions"
        + (f" at {result['budget_tokens']} tokens" if len(results) > 1 else "")
        + (f"; the first: {row['error']}" if row.get("error") else "")
        for result in results
        for row in result["methods"]
        if row.get("failed")
    }
    left_out = [f"{name} is left out: {reason}" for name, reason in results[0].get("left_out", {}).items()]
    return [*_of_retriever(results[0]), *_of_support(results[0]), *failures.values(), *left_out, *_unread(results[0])]


def _of_retriever(result: Result) -> list[str]:
    """Return what is known of the candidates' ranking."""
    found = result.get("retriever", {})
    if found.get("evidence_recall") is None:
        return []
    names = {"evidence_recall": "evidence recall", "full_evidence": "full evidence"}
    names |= {name: name for name in result.get("measures", ())}
    shown = ", ".join(f"{names[name]} {found[name]:.3f}" for name in names)
    return [f"the retriever's {found['candidates']:.1f} candidates: {shown}"]


def _of_support(result: Result) -> list[str]:
    """Return how many questions the figures below the passage are of, where these are some of them."""
    queries = result["queries"]
    figures = {
        "queries_with_sentences": "figures of sentences: of the {} of {} questions with marked sentences",
        "queries_with_answer": "answer in context: of the {} of {} questions whose evidence holds the answer's words",
    }
    known = {text: result.get(name, 0) for name, text in figures.items()}
    return [text.format(number, queries) for text, number in known.items() if 0 < number < queries]


def _unread(result: Result) -> list[str]:
    return [f"no figures of answers: {result['unread']}"] if "unread" in result else []


def markdown(
    results: Mapping[str, Sequence[Result]],
    leads: Sequence[Mapping[str, Any]] = (),
    diversity: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the tables of a comparison as Markdown.

    `results` has for each set one result a budget; see `experiments.evaluation.leads` for `leads` and `diversity`.
    """
    parts = [part for name, of_set in results.items() for part in _set_tables(name, of_set)]
    if leads:
        headings = ["questions", "budget", "method", "against", "tokens", "full evidence", "F1", "TES", "TES of recall"]
        parts += [
            "What one method gains over another, question by question, with 95% intervals by bootstrap. TES of recall "
            "counts the share of the evidence that was found, TES the questions with all of it:",
            markdown_table(headings, map(_lead_line, leads)),
        ]
    if diversity:
        headings = ["method", "budget", "questions", *diversity[0]["shares"]]
        headings += ["best single", "its F1", "oracle", "gain", "answers differ"]
        parts += [
            "How often each reranker gives the best answer F1 of all rerankers (a tie is divided among the tied), and "
            "what an oracle gains that picks the best one for each question over the best single one:",
            markdown_table(headings, map(_diversity_line, diversity)),
        ]
    return "\n\n".join(parts) + "\n"


def _set_tables(name: str, results: Sequence[Result]) -> list[str]:
    """Return title, table and remarks of one set: a line for each method, the budgets side by side in each cell."""
    budgets = " / ".join(str(result["budget_tokens"]) for result in results)
    by_method = [{row["method"]: row for row in result["methods"]} for result in results]

    def cell(method: str, name: str) -> str:
        texts = [
            FIGURES[name].text(figure_of(rows[method], name, result["queries"]))
            for rows, result in zip(by_method, results, strict=True)
        ]
        return " / ".join(map(_share, texts) if FIGURES[name].digits == 3 else texts)

    cells = {method: {figure: cell(method, figure) for figure in BRIEF} for method in by_method[0]}
    shown = [figure for figure in BRIEF if any(set(line[figure]) - set("- /") for line in cells.values())]
    lines = [[method, *(line[figure] for figure in shown)] for method, line in cells.items()]
    if all(result.get("ceiling") is not None for result in results) and "full_evidence" in shown:
        ceiling = " / ".join(_share(f"{result['ceiling']:.3f}") for result in results)
        lines.append(["(evidence that fits)", *(ceiling if figure == "full_evidence" else "" for figure in shown)])
    return [
        f"### {name}: {results[0]['queries']} questions at {budgets} tokens",
        markdown_table(["method", *(FIGURES[figure].heading for figure in shown)], lines),
        *remarks(results),
    ]


def _share(text: str) -> str:
    """Return the text of a share without the digit before the point, which says nothing."""
    return text.removeprefix("0")


def _lead_line(entry: Mapping[str, Any]) -> list[str]:
    share = entry["share_of_tokens"]
    return [
        entry["set"], str(entry["budget_tokens"]), entry["challenger"], entry["baseline"],
        "-" if share is None else f"{share:.0%}",
        *(_with_interval(entry, name) for name in ("full_evidence", "f1", "tes", "recall_tes")),
    ]  # fmt: skip


def _with_interval(entry: Mapping[str, Any], name: str) -> str:
    if name not in entry:
        return "-"
    return f"{entry[name]:+.3f} ({entry[f'{name}_low']:+.3f} to {entry[f'{name}_high']:+.3f})"


def _diversity_line(entry: Mapping[str, Any]) -> list[str]:
    return [
        entry["method"],
        str(entry["budget_tokens"]),
        f"{entry['set']}: {entry['questions']}",
        *(f"{share:.0%}" for share in entry["shares"].values()),
        entry["best"],
        f"{entry['best_mean']:.3f}",
        f"{entry['oracle_mean']:.3f}",
        f"{entry['gain']:+.0%} ({entry['low']:+.0%} to {entry['high']:+.0%})",
        f"{entry['differ']:.0%}",
    ]


def markdown_table(headings: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table, without a line break at its end."""
    names = list(headings)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (names, ["---"] * len(names), *rows))


def around_table(page: Path) -> tuple[str, str]:
    """Return what stands before and behind the markers of a page, which has both once and in their order."""
    try:
        content = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{page} cannot be read: {error}; name a Markdown file") from error
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise DataError(f"{page} must have one line {BEGIN} and below it one line {END}; put them where the table goes")
    return before, after


def replace_table(page: Path, text: str) -> None:
    """Put text between the markers of a page; see `around_table`."""
    before, after = around_table(page)
    write_atomically(page, f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}")
