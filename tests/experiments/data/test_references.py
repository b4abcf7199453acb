import pytest

from corag.errors import ReaderError
from corag.text.data import DataFolder
from corag.types import Answer
from experiments.data.folder import read_source
from experiments.data.references import ReferencesConfig, write_references
from tests.experiments.worlds import DOCUMENTS, write_folder

QUESTIONS = [
    {"id": "a", "question": "What is Varn?", "answers": [], "gold": ["varn"], "split": "dev", "article": "Varn"},
    {"id": "b", "question": "Who was Ilsa?", "answers": [], "gold": ["tolmere", "ilsa"], "split": "dev"},
    {"id": "c", "question": "What is Kell?", "answers": ["a village"], "gold": ["kell"], "split": "dev"},
    {"id": "d", "question": "What is lost?", "answers": [], "gold": ["no-such-passage"], "split": "dev"},
    {"id": "e", "question": "What is Oro?", "answers": [], "gold": ["oro"], "candidates": ["oro", "kell"],
     "split": "test"},
]  # fmt: skip


class Scribe:
    """Answers with the context's titles; fails from a given question on."""

    name = "scribe"

    def __init__(self, fail_at=None):
        self.asked = []
        self.fail_at = fail_at

    def answer(self, query, context):
        if len(self.asked) == self.fail_at:
            raise ReaderError("the server is down")
        self.asked.append((query, context))
        return Answer(f" {query} {len(context)} ")


@pytest.fixture
def data(tmp_path):
    return write_folder(tmp_path / "data", DOCUMENTS, QUESTIONS)


def config(data, **settings):
    defaults = {"data": str(data), "out": str(data.parent / "out"), "reader": "scribe", "quiet": True}
    return ReferencesConfig(**{**defaults, **settings})


def test_questions_without_an_answer_get_one_from_their_gold_passages(data):
    scribe = Scribe()
    out, number = write_references(config(data), scribe)
    assert number == 3
    assert [query for query, _ in scribe.asked] == ["What is Varn?", "Who was Ilsa?", "What is Oro?"]
    assert scribe.asked[1][1].startswith("Tolmere\nTolmere is the capital")
    assert "\n\nIlsa Brandt\nIlsa Brandt was a queen" in scribe.asked[1][1]
    before, after = DataFolder.open(data), DataFolder.open(out)
    assert after.documents == before.documents
    answers = {query.id: query.answers for query in after.queries}
    assert answers["a"] == (f"What is Varn? {len(scribe.asked[0][1])}",)
    assert (answers["c"], answers["d"]) == (("a village",), ())
    extra = {query.id: query.extra for query in after.queries}
    assert extra["a"] == {"article": "Varn", "reference_reader": "scribe"}
    assert extra["c"] == {}
    assert [query.candidates for query in after.queries] == [query.candidates for query in before.queries]
    assert read_source(out)["references"]["reader"] == "scribe"
