"""The catalogue, and what the converters make of rows in the form of each source."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.errors import InputError
from experiments.data import converters
from experiments.data.catalogue import DATA_SETS, find_data_set
from experiments.data.converters import join_sentences, run_query
from experiments.data.stress_sets import is_noise
from tests.corag.text.test_data import data_names
from tests.experiments.data.source_rows import CAPITAL, KELL, ROWS, VARN
from tests.paths import ROOT

BROUGHT = ("demo", "halueval_sample", "medquad")
"""Sets that are not fetched: that of the demo, and samples that serve if they are at hand."""


class Rows:
    """The rows of a set in place of its files."""

    used = ()

    def __init__(self, name):
        self._rows = ROWS[name]

    def rows(self, part):
        return iter(self._rows[part])


def converted(name):
    """The questions of the first split that has rows, and the passages by id."""
    data_set, files = DATA_SETS[name], Rows(name)
    split = next(split for split in data_set.splits if ROWS[name].get(split) or name == "holobench")
    questions = list(data_set.questions(files, split))
    shared = list(data_set.passages(files)) if data_set.passages else []
    passages = {passage.id: passage for question in questions for passage in question.passages}
    return questions, passages | {passage.id: passage for passage in shared}


def texts(names, passages):
    return [passages[name].text for name in names]


def test_every_set_has_rows_here():
    assert {*ROWS, "msmarco"} == set(DATA_SETS)


def test_shipped_configurations_use_sets_that_can_be_had():
    files = (ROOT / "experiments" / "configs").rglob("*.yaml")
    names = {name for file in files for name in data_names(yaml.safe_load(file.read_text()))}
    assert "hotpotqa" in names
    assert names <= {*DATA_SETS, *BROUGHT}


@pytest.mark.parametrize("name", ROWS)
def test_evidence_is_in_the_corpus_and_a_set_is_described(name):
    questions, passages = converted(name)
    assert questions and len({question.id for question in questions}) >= len(questions) - (name == "hotpotqa")
    for question in questions:
        assert question.question and isinstance(question.id, str)
        assert {entry.partition("#")[0] for entry in question.gold} <= set(passages)
        assert len(question.answers) == len(set(question.answers)) and all(question.answers)
    data_set = DATA_SETS[name]
    assert data_set.what and data_set.licence and data_set.home.startswith("https://") and data_set.megabytes > 0
    assert set(data_set.default_splits) <= set(data_set.splits)
    assert data_set.own_passages == bool(passages)


@pytest.mark.parametrize("name", ["hotpotqa", "2wikimultihopqa"])
def test_paragraphs_with_supporting_sentences(name):
    questions, passages = converted(name)
    question = questions[0]
    assert all(other == question for other in questions)  # the hub's form, and the original one
    assert question.pool and [passage.title for passage in question.passages] == ["Varn", "Tolmere", "Kell"]
    assert question.answers == ("1203",)
    assert texts(question.gold, passages) == [f"{VARN} {CAPITAL}", "Tolmere was founded in 1203. It has a choir."]
    spans = [span.rpartition("#") for span in question.extra["supporting_spans"]]
    sentences = [passages[name].text[slice(*map(int, span.split("-")))] for name, _, span in spans]
    assert sentences == [CAPITAL, "Tolmere was founded in 1203."]
    assert [facts[1][:1] for facts in question.extra["supporting_facts"]] == [[1], [0]]


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6))
def test_spans_are_those_of_the_sentences(sentences):
    text, spans = join_sentences(sentences)
    assert [text[start:end] for start, end in spans] == [sentence.strip() for sentence in sentences]
    assert text == text.rstrip()


EXPECTED = {
    "wikipassageqa": ("train-1", (), [VARN, "Large."], {"article": "Island_of_Varn.html"}),
    "msmarco-qa": ("5", ("The capital of Varn is Tolmere.", "Tolmere."), [CAPITAL], {"answerable": True}),
    "musique": ("2hop__1_2", ("1203", "in 1203"), [CAPITAL, "Founded in 1203."], {"hops": "2"}),
    "natural-questions": ("dev-0", ("Tolmere",), [CAPITAL], {"positives": ["7", "8"]}),
    "triviaqa": ("dev-0", ("Tolmere",), ["Tolmere rules Varn."], {"positives": ["7", "8"]}),
    "nq_qed": ("-42", ("Tolmere", "Varn Tolmere"), ["Varn is an island . Its capital is Tolmere ."], {}),
    "edc2-rag": ("webq-0", ("Tolmere",), [CAPITAL], {}),
    "squad": ("s0", ("Tolmere",), [f"{VARN} {CAPITAL}"], {"answer_starts": [34], "article": "Island_of_Varn"}),
    "policyqa": ("p0", ("street address", "address"), ["We collect street address and name."],
                 {"site": "varn.example", "answer_starts": [11, 18]}),
    "tatqa": ("q1", ("$ 12",), ["Sales of boats.", " | 2019\nBoats | $ 12"], {"from": "table-text"}),
    "multihoprag_facts": ("mhr-0", ("Tolmere",), ["Varn chose Tolmere.", "Kell was calm."], {}),
    "clapnq": ("138", ("For glass.", "Its glass."), [VARN], {"supporting_sentences": ["It is known for glass ."]}),
    "mtrag": ("c<::>2", ("Tolmere rules it.",), [VARN],
              {"history": ["What is Varn?", "An island."], "answerable": True}),
    "pubmedqa": ("214", ("maybe",), ["BACKGROUND: Glass is old.\nMETHODS: We tried."],
                 {"long_answer": "It seems so."}),
    "halueval": ("halueval-0", ("an island",), [VARN], {"hallucinated_answer": "Varn is a city."}),
    "felm": ("felm-wk-3-0", ("true",), [], {"links": ["https://en.wikipedia.org/wiki/Varn"]}),
    "wikibio": ("wikibio-62464-0", ("true",), ["Ilsa Brandt was a queen."], {"annotation": "accurate"}),
    "helmet-rag": ("nq-0", ("Tolmere",), [CAPITAL], {}),
}  # fmt: skip
"""Id, answers, evidence and some further fields of the first question."""


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_question(name):
    questions, passages = converted(name)
    question = questions[0]
    assert (question.id, question.answers, texts(question.gold, passages)) == EXPECTED[name][:3]
    assert EXPECTED[name][3].items() <= question.extra.items()


def test_spans_of_long_documents():
    [question], passages = converted("chroma_spans")
    spans = [entry.partition("#") for entry in question.gold]
    assert [passages[name].text[slice(*map(int, span.split("-")))] for name, _, span in spans] == [VARN, "Kell."]
    assert (question.id, question.answers) == ("varn-0", (f"{VARN} Kell.",))


def test_questions_without_an_answer_or_evidence():
    (_, without), (_, unanswerable) = converted("msmarco-qa")[0], converted("clapnq")[0]
    for question in (without, unanswerable):
        assert (question.answers, question.gold, question.extra["answerable"]) == ((), (), False)
    assert [question.extra["answerable"] for question in converted("mtrag")[0]] == [True, False]
    assert [question.id for question in converted("nq_qed")[0]] == ["-42", "44"]
    assert converted("nq_qed")[0][0].extra["supporting_spans"][0].endswith("#20-44")
    assert [question.id for question in converted("tatqa")[0]] == ["q1", "q2"]
    assert converted("tatqa")[0][1].answers == ("boats, Varn",)
    assert [question.id for question in converted("helmet-rag")[0]] == ["nq-0", "nq-1"]
    assert [question.answers for question in converted("wikibio")[0]] == [("true",), ("false",)]
    assert converted("felm")[0][1].question == "It has no capital."


def test_edc2_candidates_are_ranked_and_marked():
    [question], _ = converted("edc2-rag")
    ranked = [passage.text for passage in question.passages]
    assert ranked == [CAPITAL, "Tolmere has a choir.", "Tolmere rules Varn.", KELL]
    # What the reader of DPR marked counts, whatever words the passage holds.
    query = type("Query", (), {"extra": question.extra, "gold": question.gold, "answers": question.answers})
    assert [is_noise(passage, query) for passage in question.passages] == [False, True, False, True]


def test_amazon_phones():
    [question], passages = converted("amazon-phones")
    assert question.extra == {"product": "Sable"} and "like about Sable" in question.question
    assert texts(question.gold, passages) == ["A fine phone.", "Works.", "Works.", "Works."]


def test_multihop_rag():
    (known, unknown), passages = converted("multihop-rag")
    name, _, span = known.gold[0].rpartition("#")
    assert passages[name].text[slice(*map(int, span.split("-")))] == "Varn chose Tolmere."
    # A fact that the article tells in other words: the whole article.
    assert known.gold[1] in passages
    assert (unknown.gold, unknown.answers) == ((), ("Insufficient information.",))


def test_holobench(monkeypatch):
    questions, _ = converted("holobench")
    assert len(questions) == 5 and questions[0].answers == ("Kell\nSable",)
    assert questions[0].gold == ("wine_1-wine-0", "wine_1-wine-1", "wine_1-wine-2")
    assert {passage.id for passage in questions[0].passages} == {*questions[0].gold, "wine_1-grapes-0"}
    # With room for one row of the table that matters, the answer is that of this row.
    monkeypatch.setitem(converters.HOLOBENCH_AMOUNTS, "info-5k", 8)
    assert converted("holobench")[0][0].answers == ("Kell",)
    assert run_query("SELECT x FROM nowhere", {"wine": [{"Name": "Kell"}]}) == ""
    assert run_query('SELECT "a""b", None FROM wine', {"wine": [{'a"b': 1, "None": None}]}) == "1, "


def test_names():
    with pytest.raises(InputError, match="hotpotqa"):
        find_data_set("hotpot")
    with pytest.raises(InputError):
        find_data_set("ir_datasets:no-such-set")
    assert find_data_set("beir:scifact").splits == ("test", "train")
    assert find_data_set("ir_datasets:msmarco-passage/trec-dl-2019/judged").splits == ("test",)
    assert find_data_set("msmarco").default_splits == ("dev", "test")
