import json
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from experiments.run.journal import Journal, fingerprint, output_file
from tests.paths import ROOT

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def units_of(path, work="w"):
    with Journal(path, work) as journal:
        return dict(journal.units)


def run_limited(code, limit_bytes, *arguments):
    """Run Python code in a process whose files may not grow beyond a size, as on a full disk."""
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))\n"
    return subprocess.run(
        [sys.executable, "-c", limited + textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_anything_that_json_can_say_is_found_again(tmp_path_factory, units):
    path = tmp_path_factory.mktemp("journal") / "journal"
    with Journal(path, "w") as journal:
        for key, unit in units.items():
            journal.add(key, unit)
    assert units_of(path) == units


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


def test_other_work_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, "one work") as journal:
        journal.add("one", [1])
    before = path.read_bytes()
    with pytest.raises(DataError, match="other settings"):
        Journal(path, "another work")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("garbage", "line"),
    [
        (b"hello\n", 1),
        (b"\xff\xfe\n", 1),
        (b"[]\n", 1),
        (b"3\n", 1),
        (b"\n", 1),
        (b'{"key": "one", "unit": 1}\n', 1),
        (b'{"work": "w"}\n{"key": "one"}\n', 2),
        (b'{"work": "w"}\n{"key": [], "unit": 1}\n', 2),
        (b'{"work": "w"}\n{"key": "one", "unit": 1}\nnull\n', 3),
        (b'{"work": "w"}\n{"key": "one", "un{"key": "two", "unit": 1}\n', 2),
    ],
)
def test_garbage_is_refused_and_left_alone(tmp_path, garbage, line):
    path = tmp_path / "journal"
    path.write_bytes(garbage)
    with pytest.raises(DataError, match=r"journal"):
        Journal(path, "w")
    assert path.read_bytes() == garbage


def test_remove_deletes_the_file_and_leaving_does_not(tmp_path):
    path = tmp_path / "journal"
    with pytest.raises(RuntimeError), Journal(path, "w") as journal:
        journal.add("one", [1])
        raise RuntimeError
    assert units_of(path) == {"one": [1]}
    with Journal(path, "w") as journal:
        journal.remove()
    assert not path.exists()


@pytest.mark.slow
def test_a_full_disk_keeps_the_units_before(tmp_path):
    path = tmp_path / "journal"
    done = run_limited(
        """
        import sys
        from pathlib import Path
        from corag.errors import DataError
        from experiments.run.journal import Journal

        with Journal(Path(sys.argv[1]), "w") as journal:
            journal.add("one", ["x" * 100])
            try:
                journal.add("two", ["x" * 100])
            except DataError as error:
                assert "journal cannot be written" in str(error) and "free some space" in str(error)
                assert "two" not in journal.units
                sys.exit(7)
        """,
        200,
        path,
    )
    assert done.returncode == 7, done.stderr
    assert path.stat().st_size == 200  # the second unit is torn
    assert units_of(path) == {"one": ["x" * 100]}


def test_a_folder_is_no_output_file(tmp_path):
    assert output_file(f"{tmp_path}/new", b"{") == tmp_path / "new"
    with pytest.raises(DataError, match="no name for a file"):
        output_file(str(tmp_path), b"{")


@given(VALUES, VALUES)
def test_fingerprints_tell_values_apart(one, other):
    assert fingerprint(one) == fingerprint(json.loads(json.dumps(one)))
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert fingerprint(one) != fingerprint(other)
