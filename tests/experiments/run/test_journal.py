import pytest

from corag.errors import DataError
from experiments.run.journal import Journal


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
