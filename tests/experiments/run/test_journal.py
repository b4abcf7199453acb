import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from experiments.run.journal import Journal, fingerprint

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=2))
def test_anything_that_json_can_say_is_read_back(tmp_path_factory, units):
    path = tmp_path_factory.getbasetemp() / "journal"
    with Journal(path, "w") as journal:
        for key, unit in units.items():
            journal.add(key, unit)
    with Journal(path, "w") as journal:
        assert journal.units == units
        journal.remove()


def test_a_line_torn_at_any_byte_is_done_again(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, "w") as journal:
        journal.add("one", {"text": "é"})
        kept = len(path.read_bytes())
        journal.add("two", {"text": "ü😀"})
    whole = path.read_bytes()
    for length in range(kept, len(whole)):
        path.write_bytes(whole[:length])
        with Journal(path, "w") as journal:
            assert journal.units == {"one": {"text": "é"}}
            journal.add("two", {"text": "ü😀"})
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"work": "another"}\n{"key": "one", "unit": 1}\n',
        b"\xff\xfe\n",
        b"3\n",
        b'{"key": "one", "unit": 1}\n',
        b'{"work": "w"}\n{"key": [], "unit": 1}\n',
        b'{"work": "w"}\n{"key": "one", "un{"key": "two", "unit": 1}\n',
    ],
)
def test_other_work_and_garbage_are_refused_and_left_alone(tmp_path, garbage):
    path = tmp_path / "journal"
    path.write_bytes(garbage)
    with pytest.raises(DataError, match="journal"):
        Journal(path, "w")
    assert path.read_bytes() == garbage


@given(VALUES, VALUES)
def test_fingerprints_tell_values_apart(one, other):
    assert fingerprint(one) == fingerprint(json.loads(json.dumps(one)))
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert fingerprint(one) != fingerprint(other)
