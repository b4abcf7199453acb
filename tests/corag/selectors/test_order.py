"""The order of chosen chunks in the prompt, by hand."""

from corag import Chunk
from corag.selectors.base import arranged


def part(document, start):
    return Chunk(f"{document}#{start}", f"{document} {start}", {"document": document, "start": start, "end": start + 9})


def test_orders_by_hand():
    chunks = [part("b", 20), Chunk("note", "a note"), part("a", 5), part("b", 0), part("a", 1)]
    assert arranged(chunks, "value") == [0, 1, 2, 3, 4]
    assert arranged(chunks, "ends") == [0, 2, 4, 3, 1]
    assert arranged(chunks, "document") == [3, 0, 1, 4, 2]
