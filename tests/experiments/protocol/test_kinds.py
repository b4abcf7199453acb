import re
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import DataError, InputError
from corag.text.data import DataFolder, Query
from corag.text.documents import Document
from experiments.protocol import kinds as module
from experiments.protocol.draw import drawn_of
from experiments.protocol.kinds import (
    SEALED_FILE,
    Kind,
    Kinds,
    divide_kind,
    groups_of,
    is_sealed,
    read_kinds,
    sealed_ids,
)

KIND = Kind("papers", split="any", name="papers")
GOLD = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=2), min_size=1, max_size=40)


def question(name, gold):
    return Query(name, f"what is {name[1:]}?", (), tuple(dict.fromkeys(gold)), "all", None, {})


def folder(golds):
    """A folder in memory with one question for each list of numbers of gold passages."""
    documents = {f"p{n}": Document(f"p{n}", f"text {n}", "") for n in range(31)}
    queries = [question(f"q{n}", [f"p{one}" for one in gold]) for n, gold in enumerate(golds)]
    return DataFolder(module.Path("papers"), documents, tuple(queries))


def part_of(parts):
    return {query.id: name for name, queries in parts.items() for query in queries}


@given(GOLD, st.sets(st.integers(0, 39)))
@settings(max_examples=60)
def test_no_document_is_in_two_parts_and_no_question_is_lost_but_beside_sealed_ones(golds, sealed):
    made = folder(golds)
    ids = frozenset(f"q{n}" for n in sealed if n < len(golds))
    parts = divide_kind(made, KIND, ids, 0.4)
    group = dict(zip([query.id for query in made.queries], groups_of(made, made.queries), strict=True))
    sides = {}
    for name, part in part_of(parts).items():
        assert sides.setdefault(group[name], part) == part
    assert {query.id for query in parts["sealed"]} == ids
    left_out = {query.id for query in made.queries} - part_of(parts).keys()
    assert all(group[name] in {group[one] for one in ids} for name in left_out)


@given(GOLD, GOLD)
@settings(max_examples=60)
def test_new_questions_about_other_documents_move_no_question(golds, more):
    documents = {f"{side}{n}": Document(f"{side}{n}", "text", "") for side in "po" for n in range(31)}
    old = folder(golds).queries
    new = [question(f"n{n}", [f"o{one}" for one in gold]) for n, gold in enumerate(more)]
    sealed = frozenset(query.id for query in old[::5])
    before, after = (
        part_of(divide_kind(DataFolder(module.Path("papers"), documents, tuple(queries)), KIND, sealed, 0.4))
        for queries in (old, [*new, *old])
    )
    assert {name: part for name, part in after.items() if name in before} == before


def test_a_new_question_beside_a_sealed_one_takes_no_part():
    made = folder([[1], [1, 2], [3]])
    parts = part_of(divide_kind(made, KIND, frozenset({"q0"}), 0.4))
    assert parts["q0"] == "sealed"
    assert "q1" not in parts
    assert "q2" in parts


def test_spans_of_one_document_belong_together():
    made = folder([[1], [2]])
    queries = tuple(replace(query, gold=(f"p5#{n}-{n + 2}",)) for n, query in enumerate(made.queries))
    assert len(set(groups_of(made, queries))) == 1


def test_a_wholly_sealed_kind_has_nothing_to_train_on_or_to_choose_by():
    made = folder([[n] for n in range(20)])
    parts = divide_kind(made, replace(KIND, wholly_sealed=True), frozenset({"q0", "q1"}), 0.4)
    assert {name: len(queries) for name, queries in parts.items()} == {"training": 0, "choosing": 0, "sealed": 2}
    query = made.queries[9]
    assert is_sealed(query, [replace(KIND, wholly_sealed=True)], {}, made)
    assert not is_sealed(query, [KIND], {"papers": frozenset({"q0"})}, made)
    assert is_sealed(made.queries[0], [KIND], {"papers": frozenset({"q0"})}, made)


# --- Drawing ---


def test_what_a_shipped_part_has_learned_from_is_not_sealed_nor_what_shares_its_documents():
    made = folder([[n // 2] for n in range(40)])
    learned = frozenset({"q0", "q11"})
    found = drawn_of(made, KIND, Kinds((KIND,)), Counter(), (learned, frozenset()))
    assert found
    assert not {query.id for query in found} & {"q0", "q1", "q10", "q11"}


def test_whole_documents_are_drawn_until_the_share_is_reached():
    made = folder([[n // 4] for n in range(100)])
    found = drawn_of(made, KIND, Kinds((KIND,), sealed=0.3), Counter(), (frozenset(), frozenset()))
    assert 30 <= len(found) <= 33
    assert set(Counter(query.gold for query in found).values()) == {4}


def test_questions_that_were_seen_step_aside_unless_there_are_no_others():
    made = folder([[n] for n in range(20)])
    every = frozenset(query.id for query in made.queries)
    some = frozenset({f"q{n}" for n in range(10)})
    assert not {q.id for q in drawn_of(made, KIND, Kinds((KIND,)), Counter(), (frozenset(), some))} & some
    assert drawn_of(made, KIND, Kinds((KIND,)), Counter(), (frozenset(), every))


def test_a_question_that_stands_in_two_data_sets_is_not_sealed():
    made = folder([[n] for n in range(20)])
    found = drawn_of(
        made, replace(KIND, wholly_sealed=True), Kinds((KIND,)), Counter({"what is 3": 2}), (frozenset(),) * 2
    )
    assert {query.id for query in found} == {query.id for query in made.queries} - {"q3"}


# --- The list that ships ---


def test_the_list_holds_at_least_a_thousand_questions_of_every_kind_two_of_them_wholly_sealed():
    described, ids = read_kinds(), sealed_ids()
    assert set(ids) == {kind.name for kind in described.kinds}
    assert len(described.kinds) >= 12
    assert sum(map(len, ids.values())) >= 1000
    assert sum(kind.wholly_sealed for kind in described.kinds) >= 2
    assert max(map(len, ids.values())) <= described.most


def test_the_list_holds_nothing_but_kinds_and_ids():
    lines = [line for line in SEALED_FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines)) == len(list(chain(*sealed_ids().values())))
    assert all(re.fullmatch(r"[a-z0-9_]+ \S+", line) for line in lines)


def test_a_broken_line_of_the_list_is_named(tmp_path):
    path = tmp_path / "sealed.txt"
    path.write_text("# kind and id\nsquad q1\nsquad\n")
    with pytest.raises(DataError, match="line 3: 'squad' is no kind and question"):
        sealed_ids(path)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"kinds": (KIND, KIND)}, "give each a name of its own"),
        ({"kinds": (Kind("a"),)}, "give each a name of its own"),
        ({"kinds": (KIND,), "choosing": 1.0}, "choosing is a share between 0 and 1, got 1.0"),
    ],
)
def test_kinds_that_cannot_be_told_apart_are_refused(kinds, message):
    with pytest.raises(InputError, match=message):
        Kinds(**kinds)


def test_an_unknown_kind_is_named_with_those_that_there_are():
    with pytest.raises(InputError, match="kind 'news' is unknown; the kinds are papers"):
        Kinds((KIND,)).named("news")


def test_a_file_of_kinds_that_is_none_is_one_line(tmp_path):
    path = tmp_path / "kinds.yaml"
    path.write_text("kinds:\n- {name: a, data: a, colour: red}\n")
    with pytest.raises(InputError, match=r"kinds\.yaml: .*colour"):
        read_kinds(path)
    with pytest.raises(DataError, match="does not exist"):
        read_kinds(tmp_path / "none.yaml")
