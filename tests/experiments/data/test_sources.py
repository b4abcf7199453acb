import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError, InputError
from corag.text.data import DataFolder
from experiments.data.folder import read_source
from experiments.data.get import GetConfig, get_data
from experiments.data.sources.catalogue import SOURCES, find_source
from experiments.data.sources.multihop import _joined
from experiments.data.sources.source import Url
from experiments.data.stress_sets import is_noise
from tests.corag.text.worlds import data_names
from tests.experiments.data.source_files import WRITERS, hotpot_row, lines, text
from tests.paths import ROOT


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CORAG_DATA", raising=False)
    # The checksums are those of the real files.
    for name, source in SOURCES.items():
        parts = {
            part: tuple(replace(one, md5="") if isinstance(one, Url) else one for one in remotes)
            for part, remotes in source.parts.items()
        }
        monkeypatch.setitem(SOURCES, name, replace(source, parts=parts))


def got(name, tmp_path, **settings):
    """The data folder of a set, made of small files."""
    WRITERS[name](tmp_path / "brought")
    return DataFolder.open(
        get_data(GetConfig(name, str(tmp_path / "out"), from_=str(tmp_path / "brought"), quiet=True, **settings))
    )


def by_text(folder, name):
    return folder.documents[name].text


def test_every_set_has_a_test():
    assert {*WRITERS, "msmarco"} == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_tells_what_it_is(source):
    assert source.licence
    assert source.home.startswith("https://")
    assert set(source.splits) <= set(source.parts) or not source.parts or source.name == "holobench"
    assert source.default_splits
    for remote in (remote for remotes in source.parts.values() for remote in remotes):
        assert remote.address.startswith("https://")
        assert not isinstance(remote, Url) or len(remote.md5) in (0, 32)


BROUGHT = ("demo", "halueval_sample", "medquad")
"""Sets that are not fetched: that of the demo, and samples that stand in, or are a kind, where they are at hand."""


def test_shipped_configurations_use_sets_that_can_be_had():
    files = (ROOT / "experiments" / "configs").rglob("*.yaml")
    found = {name for file in files for name in data_names(yaml.safe_load(file.read_text()))}
    assert "hotpotqa" in found
    assert found <= {*SOURCES, *BROUGHT}


@pytest.mark.parametrize("name", ["hotpotqa", "2wikimultihopqa"])
def test_paragraphs_with_supporting_sentences(tmp_path, name):
    folder = got(name, tmp_path)
    assert len(folder.documents) == 3
    query = folder.split("dev")[0]
    assert (query.question[:15], query.answers) == ("When was the ca", ("1203",))
    assert [folder.documents[one].title for one in query.candidates] == ["Varn", "Tolmere", "Kell"]
    assert [by_text(folder, one) for one in query.gold] == [
        "Varn is an island. Its capital is Tolmere.",
        "Tolmere was founded in 1203. It has a choir.",
    ]
    assert [facts[1][:1] for facts in query.extra["supporting_facts"]] == [[1], [0]]
    spans = [span.rpartition("#") for span in query.extra["supporting_spans"]]
    sentences = [by_text(folder, one)[slice(*map(int, span.split("-")))] for one, _, span in spans]
    assert sentences == ["Its capital is Tolmere.", "Tolmere was founded in 1203."]


def test_hotpotqa_in_its_original_form(tmp_path):
    row = hotpot_row(0)
    original = {
        **row,
        "_id": row.pop("id"),
        "supporting_facts": [list(pair) for pair in zip(*row["supporting_facts"].values(), strict=True)],
        "context": [list(pair) for pair in zip(*row["context"].values(), strict=True)],
    }
    from experiments.data.sources.multihop import hotpotqa

    class Rows:
        def __init__(self, rows):
            self._rows = rows

        def rows(self, part):
            return iter(self._rows)

    [theirs], [hubs] = hotpotqa(Rows([original]), "dev"), hotpotqa(Rows([hotpot_row(0)]), "dev")
    assert theirs == hubs


words = st.text(st.characters(codec="utf-8"), max_size=8)


@given(st.lists(words, max_size=6))
def test_spans_are_those_of_the_sentences(sentences):
    text, spans = _joined(sentences)
    assert [text[start:end] for start, end in spans] == [sentence.strip() for sentence in sentences]
    assert text == text.rstrip()


def test_musique(tmp_path):
    folder = got("musique", tmp_path)
    query = folder.split("dev")[0]
    assert query.answers == ("1203", "in 1203")
    assert [folder.documents[one].title for one in query.gold] == ["Varn", "Tolmere"]
    assert len(query.candidates) == 3
    assert query.extra["hops"] == "3"
    assert query.extra["decomposition"][0] == ["Varn >> capital", "Tolmere"]


def test_policyqa(tmp_path):
    folder = got("policyqa", tmp_path)
    [passage] = folder.documents.values()
    assert passage.title == "varn.example"
    query = folder.split("dev")[0]
    assert (query.gold, query.answers) == ((passage.id,), ("street address", "address"))
    starts = query.extra["answer_starts"]
    assert [passage.text[start:][: len(one)] for start, one in zip(starts, query.answers, strict=True)] == list(
        query.answers
    )
    assert query.extra["site"] == "varn.example"


def test_tatqa(tmp_path):
    folder = got("tatqa", tmp_path)
    one, two = folder.split("dev")
    assert folder.documents["tatqa-dev-cd34"].text == " | 2019\nBoats | $ 12"
    assert one.answers == ("$ 12",) and two.answers == ("boats, Varn",)
    assert one.gold == ("tatqa-dev-cd34-1", "tatqa-dev-cd34")
    assert two.gold == ("tatqa-dev-cd34-1", "tatqa-dev-cd34-2")
    assert set(one.candidates) == {"tatqa-dev-cd34", "tatqa-dev-cd34-1", "tatqa-dev-cd34-2"}


def test_squad(tmp_path):
    folder = got("squad", tmp_path)
    assert {query.split for query in folder.queries} == {"train", "dev"}
    [passage] = folder.documents.values()
    query = folder.queries[0]
    assert (passage.title, query.gold, query.answers) == ("Island of Varn", (passage.id,), ("Tolmere",))
    assert passage.text[query.extra["answer_starts"][0] :].startswith("Tolmere")
    assert query.extra["article"] == "Island_of_Varn"


def test_qed(tmp_path):
    folder = got("nq_qed", tmp_path)
    assert [query.id for query in folder.split("train")] == ["-42", "44"]
    query = folder.queries[0]
    assert query.answers == ("Tolmere", "Varn Tolmere")
    [span] = query.extra["supporting_spans"]
    assert span == f"{query.gold[0]}#20-44"
    assert folder.queries[1].extra == {"explanation": "multi_sentence"}


@pytest.mark.parametrize(("name", "gold"), [("natural-questions", "8"), ("triviaqa", "7")])
def test_dpr(tmp_path, name, gold):
    folder = got(name, tmp_path, splits="train,dev")
    assert [query.id for query in folder.queries] == ["train-0", "train-1", "dev-0", "dev-1"]
    query = folder.queries[0]
    assert query.gold == (gold,)
    assert query.candidates == ("7", "8", "9")
    assert query.extra["positives"] == ["7", "8"]
    assert set(folder.documents) == {"7", "8", "9"}


def test_edc2(tmp_path):
    folder = got("edc2-rag", tmp_path)
    assert [query.id for query in folder.queries] == ["webq-0", "webq-1", "triviaqa-0", "triviaqa-1"]
    query = folder.queries[0]
    assert query.answers == ("Tolmere",)
    assert [by_text(folder, one) for one in query.candidates] == [
        "Its capital is Tolmere.", "Tolmere has a choir.", "Tolmere rules Varn.", "Kell is a village.",
    ]  # fmt: skip
    assert [by_text(folder, one) for one in query.gold] == ["Its capital is Tolmere."]
    # What the reader of DPR marked counts, whatever words stand in the passage.
    noise = [is_noise(folder.documents[one], query) for one in query.candidates]
    assert noise == [False, True, False, True]


def test_amazon_phones(tmp_path):
    folder = got("amazon-phones", tmp_path)
    few, many = folder.queries
    assert [(query.split, query.extra["product"]) for query in (few, many)] == [
        ("reviews-4", "Sable"), ("reviews-17", "Kell 1"),
    ]  # fmt: skip
    assert few.question == "What do customers like about Sable, and what do they complain about?"
    # Repeated reviews stay.
    assert [by_text(folder, one) for one in few.candidates] == ['A "fine" phone,\nbut heavy.', *["Works."] * 3]
    assert len(many.candidates) == 17 and many.gold == many.candidates and many.answers == ()


def test_msmarco_qa(tmp_path):
    folder = got("msmarco-qa", tmp_path)
    answered, without = folder.queries
    assert answered.answers == ("The capital of Varn is Tolmere.", "Tolmere.")
    assert [by_text(folder, one) for one in answered.gold] == ["Its capital is Tolmere."]
    assert (without.answers, without.gold, without.extra["answerable"]) == ((), (), False)
    assert answered.candidates == without.candidates


def test_wikipassageqa(tmp_path):
    folder = got("wikipassageqa", tmp_path)
    assert [(query.split, query.id) for query in folder.queries] == [
        ("train", "train-1"), ("dev", "dev-1"), ("test", "test-2"),
    ]  # fmt: skip
    query = folder.queries[0]
    assert (query.question, query.answers, query.gold) == ('What is "Varn"?', (), ("12-0", "12-2"))
    assert folder.documents["12-2"].title == "Island of Varn"
    assert len(folder.documents) == 4


def test_multihop_rag(tmp_path):
    folder = got("multihop-rag", tmp_path)
    known, unknown = folder.queries
    name, _, span = known.gold[0].rpartition("#")
    assert by_text(folder, name)[slice(*map(int, span.split("-")))] == "Varn chose Tolmere."
    # A fact that the article tells in other words: the whole article.
    assert known.gold[1] in folder.documents
    assert (unknown.gold, unknown.answers) == ((), ("Insufficient information.",))


def test_multihop_rag_with_facts(tmp_path):
    folder = got("multihoprag_facts", tmp_path)
    assert [by_text(folder, one) for one in folder.queries[0].gold] == ["Varn chose Tolmere.", "Kell was calm."]
    assert len(folder.documents) == 2


def test_clapnq(tmp_path):
    folder = got("clapnq", tmp_path)
    answered, unanswerable = folder.split("dev")
    assert answered.answers == ("For glass.", "Its glass.")
    assert answered.gold == ("82_1-9",)
    assert by_text(folder, "82_1-9").endswith('It is known for "glass" .')
    assert answered.extra["supporting_sentences"] == ["It is known for glass ."]
    assert (unanswerable.answers, unanswerable.gold, unanswerable.extra["answerable"]) == ((), (), False)


def test_pubmedqa(tmp_path):
    folder = got("pubmedqa", tmp_path)
    [query] = folder.queries
    assert (query.answers, query.extra["long_answer"]) == (("maybe",), "It seems so.")
    assert by_text(folder, "pmid-214") == "BACKGROUND: Glass is old.\nMETHODS: We tried."


def test_halueval(tmp_path):
    folder = got("halueval", tmp_path)
    assert len(folder.queries) == 2
    query = folder.queries[0]
    assert (query.answers, query.extra) == (("an island",), {"hallucinated_answer": "Varn is a city."})
    assert len(folder.documents) == 1


def test_felm_is_asked_of_another_corpus(tmp_path):
    other = got("halueval", tmp_path / "other").path
    folder = got("felm", tmp_path, corpus=str(other), splits="wk,science")
    assert [(query.question, query.answers) for query in folder.split("wk")] == [
        ("Varn is an island.", ("true",)), ("It has no capital.", ("false",)),
    ]  # fmt: skip
    assert list(folder.documents) == list(DataFolder.open(other).documents)
    assert folder.queries[0].extra["links"] == ["https://en.wikipedia.org/wiki/Varn"]
    with pytest.raises(InputError, match=r"felm has no passages; name a data folder .* --corpus"):
        got("felm", tmp_path / "again")
    with pytest.raises(InputError, match="squad brings its own passages; leave out --corpus"):
        got("squad", tmp_path / "again", corpus=str(other))


def test_wikibio(tmp_path):
    folder = got("wikibio", tmp_path)
    assert [query.answers for query in folder.queries] == [("true",), ("false",), ("false",)]
    assert folder.queries[1].extra["annotation"] == "major_inaccurate"
    assert folder.queries[0].gold == ("wikibio-62464",)


def test_helmet(tmp_path):
    folder = got("helmet-rag", tmp_path, splits="nq,popqa")
    assert [(query.id, query.split) for query in folder.queries] == [
        ("nq-0", "nq"), ("nq-1", "nq"), ("popqa-0", "popqa"),
    ]  # fmt: skip
    query = folder.queries[0]
    assert [by_text(folder, one) for one in query.gold] == ["Its capital is Tolmere."]
    assert len(query.candidates) == 3


def test_holobench(tmp_path, monkeypatch):
    folder = got("holobench", tmp_path, splits="info-5k")
    assert len(folder.queries) == 5
    query = folder.queries[0]
    assert query.answers == ("Kell\nSable",)
    assert query.gold == ("wine_1-wine-0", "wine_1-wine-1", "wine_1-wine-2")
    assert set(query.candidates) == {*query.gold, "wine_1-grapes-0"}
    # With room for one row of the table that matters, the answer is that of this row.
    from experiments.data.sources import long_context

    monkeypatch.setitem(long_context.HOLOBENCH_AMOUNTS, "info-5k", 12)
    assert got("holobench", tmp_path / "less", splits="info-5k").queries[0].answers == ("Kell",)


def test_a_query_that_sqlite_cannot_run_has_no_answer():
    from experiments.data.sources.long_context import _answer

    assert _answer("SELECT x FROM nowhere", {"wine": [{"Name": "Kell"}]}) == ""
    assert _answer('SELECT "a""b", None FROM wine', {"wine": [{'a"b': 1, "None": None}]}) == "1, "


# FELM shares another set's corpus.
@pytest.mark.parametrize("name", [name for name in WRITERS if name != "felm"])
def test_the_same_files_give_the_same_bytes(tmp_path, name):
    settings = {"splits": "nq"} if name == "helmet-rag" else {}
    first = got(name, tmp_path / "a", **settings).path
    second = got(name, tmp_path / "b", **settings).path
    for file in ("corpus.jsonl.gz", "queries.jsonl.gz"):
        assert (first / file).read_bytes() == (second / file).read_bytes()


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "felm"])
def test_a_limit_counts_for_each_split(tmp_path, name):
    settings = {"splits": "nq"} if name == "helmet-rag" else {}
    folder = got(name, tmp_path, limit=1, **settings)
    splits = [query.split for query in folder.queries]
    assert len(splits) == len(set(splits))
    record = read_source(folder.path)
    assert record["licence"] == SOURCES[name].licence
    assert record["questions"] == dict.fromkeys(splits, 1)
    assert record["passages"] == len(folder.documents)
    assert "Licence" in (folder.path / "README.md").read_text()


def test_a_part_of_a_shared_corpus_keeps_the_evidence(tmp_path):
    folder = got("wikipassageqa", tmp_path, passages=1, splits="dev")
    assert list(folder.documents) == ["12-0", "7-0"]


def test_names_that_are_not_known():
    with pytest.raises(InputError, match=r"no data set 'hotpot'; did you mean 'hotpotqa'\?.*beir:NAME"):
        find_source("hotpot")
    with pytest.raises(InputError, match="ir_datasets has no data set 'no-such-set'"):
        find_source("ir_datasets:no-such-set")
    with pytest.raises(InputError, match="squad has no split 'test'; its splits are train, dev"):
        get_data(GetConfig("squad", splits="test"))


@pytest.mark.parametrize("settings", [{"limit": 0}, {"passages": 0}])
def test_numbers_that_cannot_be(settings):
    [(name, _)] = settings.items()
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        GetConfig("squad", **settings)


def test_files_of_another_form_are_an_error_that_names_the_source(tmp_path):
    text(tmp_path / "brought" / "musique_ans_v1.0_train.jsonl", lines([{"id": "1", "question": "?"}]))
    with pytest.raises(DataError, match=r"the files of musique have another form.*'paragraphs'.*github"):
        get_data(GetConfig("musique", str(tmp_path / "out"), "train", from_=str(tmp_path / "brought"), quiet=True))
    text(tmp_path / "brought" / "musique_ans_v1.0_train.jsonl", "{broken\n")
    with pytest.raises(DataError, match=r"musique_ans_v1\.0_train\.jsonl cannot be read: .*delete it"):
        get_data(GetConfig("musique", str(tmp_path / "out"), "train", from_=str(tmp_path / "brought"), quiet=True))
    assert not (tmp_path / "out").exists()


def test_lone_surrogates_are_replaced_and_repeated_questions_left_out(tmp_path, capsys):
    WRITERS["musique"](tmp_path / "brought")
    file = tmp_path / "brought" / "musique_ans_v1.0_train.jsonl"
    row = json.loads(file.read_text())
    row["paragraphs"][0]["paragraph_text"] = "Broken \ud83d emoji"
    text(file, lines([row, row]))
    settings = GetConfig("musique", str(tmp_path / "out"), "train", from_=str(tmp_path / "brought"), quiet=True)
    folder = DataFolder.open(get_data(settings))
    assert len(folder.queries) == 1
    assert any(passage.text.startswith("Broken �") for passage in folder.documents.values())
    assert "1 questions whose id had come before were left out" in capsys.readouterr().err
