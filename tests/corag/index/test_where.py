"""Filters on metadata against the same filters in plain Python."""

import math

import pytest

import corag
from corag import Chunk
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.index.where import sql_of
from tests.fakes import HashEmbedder

VALUES = [
    "abc", "3", "O'Brien", "ü😀", 'a\n"b"\\/\x01', "2026-01-05", "2026-01-05 10:00", "2025-12-31", "\ud800", "",
    "a,b", '","', 3, 3.5, -1, 3.0, 2**62, True, False, None, math.nan, ["a", "b"], [3, 4], ["3"], [True], [],
    {"x": 1}, {},
]  # fmt: skip
CHUNKS = [
    *[Chunk(f"v{number}", f"a red stone {number}", {"field": value}) for number, value in enumerate(VALUES)],
    Chunk("none", "a red river", {}),
    Chunk("odd", "a red tree", {"with.dot": 5, "qu\"o'te": 6, "field": "abc"}),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return ChunkIndex.build(tmp_path_factory.mktemp("where") / "index", CHUNKS, HashEmbedder())


def equal(found, wanted):
    if isinstance(found, list):
        return any(equal(one, wanted) for one in found)
    if wanted is None:
        return found is None or (isinstance(found, float) and math.isnan(found))
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    if isinstance(wanted, str):
        return isinstance(found, str) and found.replace("\ud800", "?") == wanted.replace("\ud800", "?")
    return isinstance(found, int | float) and found == wanted


def found_by(index, where):
    """The ids that each way of searching finds, which must be the same."""
    query = HashEmbedder().embed(["any"])[0]
    by_vector = {one.chunk.id for one in index.retrieve("red", query, 100, "vector", where)}
    assert {one.chunk.id for one in index.retrieve("red", query, 100, "text", where)} == by_vector
    assert {one.chunk.id for one in index.retrieve("red", query, 100, "hybrid", where)} == by_vector
    return by_vector


def expected(holds, name="field"):
    return {chunk.id for chunk in CHUNKS if holds(chunk.metadata.get(name))}


@pytest.mark.parametrize(
    "wanted", ["abc", "3", 3, 3.0, 3.5, -1, True, False, None, "a", "nothing", "", "\ud800", 2**62]
)
def test_a_field_is_a_value_or_holds_it(index, wanted):
    assert found_by(index, {"field": wanted}) == expected(lambda found: equal(found, wanted))


def test_any_of_several_values_and_several_fields_at_once(index):
    assert found_by(index, {"field": ["abc", 3.5]}) == expected(lambda found: found in ("abc", 3.5))
    assert found_by(index, {"field": "abc", "with.dot": 5}) == {"odd"}
    assert found_by(index, {"qu\"o'te": 6}) == {"odd"}
    assert found_by(index, {"field": "abc", "with.dot": 6}) == set()
    assert found_by(index, {}) == {chunk.id for chunk in CHUNKS}


def test_comparisons(index):
    def number(found):
        return isinstance(found, int | float) and not isinstance(found, bool)

    assert found_by(index, {"field": {">=": 3}}) == expected(lambda found: number(found) and found >= 3)
    assert found_by(index, {"field": {">": -2, "<": 3.5}}) == expected(lambda found: number(found) and -2 < found < 3.5)
    dates = {"field": {">=": "2025-12-31", "<=": "2026-12-31"}}
    assert found_by(index, dates) == expected(lambda found: isinstance(found, str) and "2025-12" < found < "2026-12-31")
    later = {"field": {">": "2026-01-05", "<": "2026-01-06"}}
    assert found_by(index, later) == expected(lambda found: found == "2026-01-05 10:00")
    assert found_by(index, {"field": {"!=": "abc"}}) == expected(lambda found: found != "abc")
    assert found_by(index, {"field": {"!=": None}}) == expected(lambda found: not equal(found, None))


@pytest.mark.parametrize(
    "where",
    [
        "title = 'x'", {3: "a"}, {"": "a"}, {"a": []}, {"a": {}}, {"a": {"~": 3}}, {"a": {"<": None}}, {"a": math.nan},
        {"a": {"<": 10**400}}, {"a": object()}, {"a": [["b"]]},
    ],
)  # fmt: skip
def test_what_is_not_a_filter(where):
    with pytest.raises(InputError):
        sql_of(where)


def test_ask_filters_an_index_and_nothing_else(index):
    reply = corag.ask(
        "Which stone is red?", index, where={"field": ["abc", 3.5]}, embedder=HashEmbedder(), method="top-k(k=9)",
        reader="extractive",
    )  # fmt: skip
    assert set(reply.selection.ids) == expected(lambda found: found in ("abc", 3.5))
    with pytest.raises(InputError, match="where"):
        corag.ask("Which stone?", ["A red stone."], where={"field": 3})
