"""Small data sets under the names that studies ask for."""

from __future__ import annotations

from pathlib import Path

from experiments.papers.cells import cells_of
from experiments.papers.needs import sets_of
from experiments.papers.standins import standins
from experiments.papers.study import find_study, study_files
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

NAMES = tuple(study_files())
MEASURED = tuple(name for name in NAMES if not find_study(name).includes)
"""Studies that compare or count; the others consist of these."""
COPIES = 12
MANY_CANDIDATES = ("hotpotqa", "musique")
"""Sets whose candidates are drawn with a share of noise."""
UNANSWERED = ("msmarco", "amazon-phones")
"""Sets whose reference answers have to be written."""


def wanted_sets() -> dict[str, set[str]]:
    """Data sets and their splits that full studies and their stand-ins name."""
    found: dict[str, set[str]] = {}
    for name in MEASURED:
        study = find_study(name)
        for data, split in sets_of(study, cells_of(study)):
            found.setdefault(data, set()).add(split)
    for entry in standins().data.values():
        for one in entry if isinstance(entry, list) else [entry]:
            if isinstance(one, dict):
                found.setdefault(one["data"], set()).add(one.get("split", "dev"))
    return found


def write_sets(root: Path) -> Path:
    """Write a small data folder of each of these names."""
    for name, splits in wanted_sets().items():
        write_set(root / name, splits)
    return root


def write_set(folder: Path, splits: set[str]) -> Path:
    """Write a small data folder, with the same questions in each split."""
    answered = [query for query in QUERIES if query["answers"]][:2]
    queries = [
        {**query, "id": f"{split}-{query['id']}", "split": split} for split in sorted(splits) for query in answered
    ]
    if folder.name == "msmarco" and "train" in splits:
        # An agent learns from questions about different documents.
        queries = [query for query in queries if query["split"] != "train"] + [
            {
                **answered[0],
                "split": "train",
                "id": f"train-{row['id']}",
                "question": f"What is {row['title']}?",
                "gold": [row["id"]],
            }
            for row in DOCUMENTS[:7]
        ]
    if folder.name in UNANSWERED:
        queries = [{**query, "answers": []} for query in queries]
    if folder.name.startswith("halueval"):
        queries = [{**query, "hallucinated_answer": "a lighthouse"} for query in queries]
    if folder.name in MANY_CANDIDATES:
        every = [row["id"] for row in DOCUMENTS]
        return write_folder(folder, DOCUMENTS, [{**query, "candidates": every} for query in queries])
    make = {"edc2-rag": _marked, "squad": _one_article}.get(folder.name, lambda queries: (DOCUMENTS[:7], queries))
    return write_folder(folder, *make([{**query, "candidates": query["candidates"][:2]} for query in queries]))


def _marked(queries):
    """A corpus large enough for 100 candidates at every share of noise, which each question names."""
    documents = [
        {**row, "id": f"{row['id']}-{number}", "text": f"{row['text']} ({number})"}
        for number in range(COPIES)
        for row in DOCUMENTS
    ]
    ids = [row["id"] for row in documents]
    marked = []
    for query in queries:
        gold = [f"{name}-0" for name in query["gold"]]
        helpful = {*gold, *ids[::2]}
        marked.append(
            {**query, "gold": gold, "candidates": ids, "noise": [name for name in ids if name not in helpful]}
        )
    return documents, marked


def _one_article(queries):
    """Paragraphs of one article, the first half of which holds every answer."""
    said = ", ".join(query["answers"][0] for query in queries)
    half = len(DOCUMENTS) // 2
    texts = [f"{row['text']} ({said})" if place < half else row["text"] for place, row in enumerate(DOCUMENTS)]
    return [{**row, "title": "Varn", "text": text} for row, text in zip(DOCUMENTS, texts, strict=True)], queries
