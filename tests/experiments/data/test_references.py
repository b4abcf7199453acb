from corag.registry import READERS
from corag.text.data import DataFolder
from corag.types import Answer
from experiments.data.folder import read_source
from experiments.data.references import ReferencesConfig, write_references
from tests.experiments.worlds import DOCUMENTS, write_folder
from tests.fakes import FakeReader

QUESTIONS = [
    {"id": "a", "question": "What is Varn?", "answers": [], "gold": ["varn"], "split": "dev", "article": "Varn"},
    {"id": "b", "question": "Who was Ilsa?", "answers": [], "gold": ["tolmere", "ilsa"], "split": "dev"},
    {"id": "c", "question": "What is Kell?", "answers": ["a village"], "gold": ["kell"], "split": "dev"},
    {"id": "d", "question": "What is lost?", "answers": [], "gold": ["no-such-passage"], "split": "dev"},
    {"id": "e", "question": "What is Oro?", "answers": [], "gold": ["oro"], "candidates": ["oro", "kell"],
     "split": "test"},
]  # fmt: skip


def test_questions_without_an_answer_get_one_from_their_gold_passages(tmp_path, monkeypatch):
    data = write_folder(tmp_path / "data", DOCUMENTS, QUESTIONS)
    echo = FakeReader(lambda query, context: Answer(f"{query} {context}"), "echo")
    monkeypatch.setitem(READERS.parts, "echo", lambda: echo)
    out, number = write_references(ReferencesConfig(str(data), str(tmp_path / "out"), "echo", quiet=True))
    assert number == 3
    assert [query for query, _ in echo.asked] == ["What is Varn?", "Who was Ilsa?", "What is Oro?"]
    assert echo.asked[1][1].startswith("Tolmere\nTolmere is the capital")
    assert "\n\nIlsa Brandt\nIlsa Brandt was a queen" in echo.asked[1][1]
    before, after = DataFolder.open(data), DataFolder.open(out)
    assert after.documents == before.documents
    answers = {query.id: query.answers for query in after.queries}
    assert answers["a"] == (f"What is Varn? {echo.asked[0][1]}",)
    assert (answers["c"], answers["d"]) == (("a village",), ())
    extra = {query.id: query.extra for query in after.queries}
    assert extra["a"] == {"article": "Varn", "reference_reader": "echo"}
    assert extra["c"] == {}
    assert [query.candidates for query in after.queries] == [query.candidates for query in before.queries]
    assert read_source(out)["references"]["reader"] == "echo"
