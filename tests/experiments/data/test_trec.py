"""TREC runs and judgements."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from experiments.data.trec import escaped, read_run, run_lines

RUN = "q1 Q0 b 2 3.5 bm25\nq1 Q0 a 1 7e1 bm25\n\nq2\tQ0\tb\t0\t-1\tbm25\nq2 Q0 c 0 2 bm25\n"


def ids(path, queries=None):
    return {query: list(ranked) for query, ranked in read_run(path, queries).items()}


def test_a_run_is_read_by_score(tmp_path):
    file = tmp_path / "a.run.gz"
    file.write_bytes(gzip.compress(RUN.encode()))
    assert ids(file) == {"q1": ["a", "b"], "q2": ["c", "b"]}
    assert read_run(file, {"q2", "q3"}, limit=1) == {"q2": {"c": 2.0}}


@pytest.mark.parametrize(
    "line",
    [
        "q1 Q0 c 3 1.0", "q1 Q0 c 3 first t", "q1 Q0 c 3 nan t", "q1 Q0 \xff 3 1.0 t",
    ],
)  # fmt: skip
def test_a_broken_line_of_a_run_is_named(tmp_path, line):
    file = tmp_path / "a.run"
    file.write_bytes(RUN.encode() + line.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.run is not"):
        read_run(file)


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), min_size=1, max_size=5)


@given(st.dictionaries(NAMES, st.lists(NAMES, unique_by=escaped, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_written_run_is_read_back(tmp_path_factory, rankings):
    rankings = {escaped(query): passages for query, passages in rankings.items()}
    file = tmp_path_factory.mktemp("runs") / "a.run"
    file.write_text("".join(run_lines(rankings, "my method")), encoding="utf-8", newline="\n")
    assert ids(file) == {query: [escaped(name) for name in passages] for query, passages in rankings.items()}
    for ranked in read_run(file).values():
        assert list(ranked.values()) == sorted(set(ranked.values()), reverse=True)
