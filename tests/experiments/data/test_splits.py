import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import DataError
from corag.text.data import DataFolder
from experiments.data.splits import divide, questions_of

QUESTIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8)), min_size=1, max_size=60)


@settings(max_examples=40)
@given(QUESTIONS, st.integers(0, 3))
def test_no_group_is_divided_and_the_order_does_not_matter(questions, seed):
    data = [d for d, _ in questions]
    parts = divide(data, [f"{d}/{g}" for d, g in questions], (0.6, 0.1, 0.3), seed)
    sides = {}
    for question, part in zip(questions, parts.tolist(), strict=True):
        assert sides.setdefault(question, part) == part
    turned = divide(data[::-1], [f"{d}/{g}" for d, g in questions[::-1]], (0.6, 0.1, 0.3), seed)
    assert turned[::-1].tolist() == parts.tolist()


def folder_of(path, golds, **fields):
    """A folder with one question for each list of gold passages."""
    names = sorted({name for gold in golds for name in gold})
    rows = [{"id": f"q{n}", "question": "what?", "gold": gold, **fields} for n, gold in enumerate(golds)]
    documents = [{"id": name, "title": "", "text": name} for name in names]
    for stem, lines in (("corpus", documents), ("queries", rows)):
        (path / f"{stem}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return DataFolder.open(path)


def test_questions_that_name_no_split_are_divided_by_documents(tmp_path):
    folder = folder_of(tmp_path, [[f"d{n // 2}", f"e{n}"] for n in range(40)])
    splits = {name: questions_of(folder, name) for name in ("train", "dev", "test")}
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 24, "dev": 8, "test": 8}
    assert all(query.split == name for name, queries in splits.items() for query in queries)
    owners = [{query.gold[0] for query in queries} for queries in splits.values()]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 20
    assert questions_of(folder, "dev", 3) == splits["dev"][:3]
    assert questions_of(folder, "all") == list(folder.queries)


def test_splits_that_the_data_names_are_kept(tmp_path):
    folder = folder_of(tmp_path, [["a"], ["b"]], split="test")
    assert questions_of(folder, "test") == list(folder.queries)
    with pytest.raises(DataError):
        questions_of(folder, "train")
