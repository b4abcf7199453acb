"""TREC runs."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import DataError
from corag.text.trec import escaped, qrels_lines, read_run, run_lines

RUN = "q1 Q0 b 2 3.5 bm25\nq1 Q0 a 1 7e1 bm25\n\nq2\tQ0\tb\t0\t-1\tbm25\n"


def ids(path, **wanted):
    return {query: [one.id for one in ranked] for query, ranked in read_run(path, **wanted).items()}


@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
def test_a_run_is_read_by_rank(tmp_path, gz):
    file = tmp_path / ("a.run.gz" if gz else "a.run")
    file.write_bytes(gzip.compress(RUN.encode()) if gz else RUN.encode())
    found = read_run(file)
    assert {query: [tuple(one) for one in ranked] for query, ranked in found.items()} == {
        "q1": [("a", 70.0, 2), ("b", 3.5, 1)],
        "q2": [("b", -1.0, 4)],
    }
    assert ids(file, wanted={"q2", "q3"}.__contains__) == {"q2": ["b"]}


def test_of_equal_ranks_the_scores_decide(tmp_path):
    file = tmp_path / "a.run"
    file.write_text("q Q0 a 0 1 t\nq Q0 b 0 3 t\nq Q0 c 0 2 t\nq Q0 d -1 0 t\n")
    assert ids(file) == {"q": ["d", "b", "c", "a"]}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q1 Q0 c 3 1.0", "5 columns; a line of a run has six: question Q0 passage rank score tag"),
        ("q1 Q0 c 3 1.0 my tag", "7 columns"),
        ('{"id": "q1"}', "2 columns"),
        ("q1 Q0 c first 1.0 t", "the rank is 'first'; it must be a whole number"),
        ("q1 Q0 c 1.5 1.0 t", "the rank is '1.5'"),
        ("q1 Q0 c 3 high t", "the score is 'high'; it must be a finite number"),
        ("q1 Q0 c 3 nan t", "the score is 'nan'"),
        ("q1 Q0 c 3 inf t", "the score is 'inf'"),
        ("q1 Q0 a 3 1.0 t", "passage 'a' is already ranked for question 'q1' in line 2"),
        ("q1 Q0 \xff 3 1.0 t", "not UTF-8"),
    ],
)
def test_a_broken_line_of_a_run_is_named(tmp_path, line, reason):
    file = tmp_path / "a.run"
    file.write_bytes(RUN.encode() + line.encode("latin-1"))
    with pytest.raises(DataError, match=rf"a\.run, line 5: {reason}"):
        read_run(file)


def test_no_run(tmp_path):
    with pytest.raises(DataError, match=r"there is no run .*nothing\.run; give a file with lines such as: q1 Q0"):
        read_run(tmp_path / "nothing.run")
    (tmp_path / "empty.run").write_text("\n \n")
    with pytest.raises(DataError, match=r"empty\.run is empty"):
        read_run(tmp_path / "empty.run")
    (tmp_path / "a.run.gz").write_bytes(gzip.compress(RUN.encode())[:-9])
    with pytest.raises(DataError, match=r"a\.run\.gz, after line \d: cannot be read"):
        read_run(tmp_path / "a.run.gz")


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), min_size=1, max_size=5)


@given(st.dictionaries(NAMES, st.lists(NAMES, unique_by=escaped, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_written_run_is_read_back(tmp_path_factory, rankings):
    rankings = {escaped(query): passages for query, passages in rankings.items()}
    file = tmp_path_factory.mktemp("runs") / "a.run"
    file.write_text("".join(run_lines(rankings, "my method")), encoding="utf-8", newline="\n")
    assert ids(file) == {query: [escaped(name) for name in passages] for query, passages in rankings.items()}
    scores = {query: [one.score for one in ranked] for query, ranked in read_run(file).items()}
    assert all(list(found) == sorted(set(found), reverse=True) for found in scores.values())


@settings(max_examples=20)
@given(st.permutations(range(1, 401)), st.integers(1, 250))
def test_the_best_of_a_long_run(tmp_path_factory, ranks, limit):
    file = tmp_path_factory.mktemp("runs") / "a.run"
    file.write_text("".join(f"q Q0 p{rank} {rank} {-rank} t\n" for rank in ranks))
    assert ids(file, limit=limit) == {"q": [f"p{rank}" for rank in range(1, limit + 1)]}


def test_what_is_written():
    assert list(run_lines({"q 1": ["a\tb", "c"]}, "top-k k=3")) == [
        "q%201 Q0 a%09b 1 2 top-k%20k=3\n",
        "q%201 Q0 c 2 1 top-k%20k=3\n",
    ]
    assert list(qrels_lines({"q 1": {"a b": 2, "c": 0}})) == ["q%201 0 a%20b 2\n", "q%201 0 c 0\n"]
