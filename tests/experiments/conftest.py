import pytest


@pytest.fixture
def reader(monkeypatch):
    """The reader that `--reader first-words` names, which answers with the first words of the context."""
    from corag.registry import READERS
    from corag.types import Answer
    from tests.fakes import FakeReader

    reader = FakeReader(lambda query, context: Answer(" ".join(context.split()[:8])), "first-words")
    monkeypatch.setitem(READERS.parts, "first-words", lambda: reader)
    return reader
