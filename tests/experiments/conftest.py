import pytest


@pytest.fixture
def reader(monkeypatch):
    """The reader that `--reader first-words` names."""
    from corag.registry import READERS
    from tests.experiments.worlds import FirstWords

    reader = FirstWords()
    monkeypatch.setitem(READERS.parts, "first-words", lambda: reader)
    return reader
