from corag.readers.cached import CachedReader
from corag.types import Answer, Reader


class Echo:
    name = "echo"

    def __init__(self):
        self.asked = []

    def answer(self, query, context):
        self.asked.append((query, context))
        return Answer(f"{query} {context}")


class Together(Echo):
    def answer_many(self, queries, contexts):
        self.asked.append((list(queries), list(contexts)))
        return [Answer(f"{query} {context}") for query, context in zip(queries, contexts, strict=True)]


def test_each_context_is_read_once_for_each_question():
    echo = Echo()
    reader = CachedReader(echo)
    assert isinstance(reader, Reader) and reader.name == "echo"
    found = reader.answer_many(["q", "q", "p", "q"], ["a", "b", "a", "a"])
    assert [answer.text for answer in found] == ["q a", "q b", "p a", "q a"]
    assert reader.answer("q", "b").text == "q b"
    assert echo.asked == [("q", "a"), ("q", "b"), ("p", "a")]
    assert reader.answer_many([], []) == []


def test_what_is_new_is_read_together():
    together = Together()
    reader = CachedReader(together)
    reader.answer("q", "a")
    assert [one.text for one in reader.answer_many(["q", "q", "q"], ["c", "a", "b"])] == ["q c", "q a", "q b"]
    assert together.asked == [(["q"], ["a"]), (["q", "q"], ["c", "b"])]


def test_what_is_forgotten_is_read_again():
    echo = Echo()
    reader = CachedReader(echo, cache_mb=0.0004)
    for context in ("a", "b", "a"):
        reader.answer("q", context)
    assert len(echo.asked) == 3
    # More at once than is remembered.
    assert [one.text for one in reader.answer_many(["q"] * 3, ["x", "y", "x"])] == ["q x", "q y", "q x"]
