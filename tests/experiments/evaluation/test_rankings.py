"""TREC runs in and out, BEIR folders, and measures of rankings."""

import gzip
import math

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from corag.types import Chunk
from experiments.data.trec import escaped, ranking_of, read_run, run_lines
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.report.comparison import results_page
from tests.corag.text.test_data import HEADING, write_beir
from tests.experiments.worlds import DOCUMENTS, QUERIES, evaluate, rows_of, write_folder

PASSAGES = [{"_id": row["id"], "title": row["title"], "text": row["text"]} for row in DOCUMENTS]
QUESTIONS = [{"_id": row["id"], "text": row["question"], "metadata": {}} for row in QUERIES]


def config_of(data, **settings):
    return EvaluateConfig(
        **{"data": str(data), "split": "test", "methods": "top-k(k=2)", "reader": "none", "budget": 400, "quiet": True}
        | settings
    )


def chunk(name, document=None, start=0, end=10):
    return Chunk(name, name, {} if document is None else {"document": document, "start": start, "end": end})


@pytest.fixture
def beir(tmp_path):
    """A BEIR folder: three questions with judgements, one of which has no relevant passage."""
    judged = "q1\tvarn\t2\nq1\ttolmere\t1\nq1\tpine\t0\nq2\tsable\t1\nq3\tkell\t0\n"
    return write_beir(tmp_path / "beir", {"test": HEADING + judged}, PASSAGES, QUESTIONS)


def test_chunks_stand_for_their_passages_and_for_spans_of_gold():
    chunks = [chunk("a#0-10", "a"), chunk("b"), chunk("a#10-20", "a", 10, 20), chunk("a#20-30", "a", 20, 30)]
    assert ranking_of(chunks, []) == ["a", "b"]
    assert ranking_of(chunks, ["a"]) == ["a", "b"]
    # Half of the span is enough; the first chunk stands for no gold.
    assert ranking_of(chunks, ["a#12-24"]) == ["a", "b", "a#12-24"]
    assert ranking_of(chunks, ["a#10-14", "a#12-18", "c"]) == ["a", "b", "a#10-14", "a#12-18"]
    assert ranking_of([], ["a"]) == []


def test_what_is_written_gives_trec_users_the_same_figures(tmp_path, beir):
    run, out = tmp_path / "a.run", tmp_path / "result.json"
    rankings = {"q1": ["mayor", "tolmere", "varn"], "q2": ["oro", "kell"], "q3": ["kell"]}
    run.write_text("".join(run_lines(rankings, "bm25")))
    methods = "top-k(k=2),naive(reranker=bm25),none"
    result = evaluate(config_of(beir, methods=methods, run=str(run), out=str(out), measures="nDCG@10,RR@10,R@20,AP"))
    assert (result["pool"], result["queries"], result["queries_without_gold"]) == ("run", 3, 1)
    folder = tmp_path / "result.runs"
    assert sorted(path.name for path in folder.iterdir()) == [
        "naive_reranker=bm25.run", "none.run", "qrels.txt", "retriever.run", "top-k_k=2.run",
    ]  # fmt: skip
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels.txt")))
    measures = [ir_measures.parse_measure(name) for name in result["measures"]]
    figures = {"retriever": result["retriever"]} | {row["method"]: row for row in result["methods"]}
    for method, row in figures.items():
        file = folder / f"{method.replace('(', '_').strip(')')}.run"
        found = ir_measures.calc_aggregate(measures, qrels, list(ir_measures.read_trec_run(str(file))))
        assert {str(name): value for name, value in found.items()} == pytest.approx(
            {str(m): row[str(m)] for m in measures}
        )
    # By hand: of two questions one has both passages at ranks 2 and 3, the other none.
    assert result["retriever"] == pytest.approx(
        {"nDCG@10": (1 / math.log2(3) + 2 / 2) / (2 + 1 / math.log2(3)) / 2, "RR@10": 1 / 4, "R@20": 1 / 2,
         "AP": (1 / 2 + 2 / 3) / 2 / 2, "evidence_recall": 1 / 2, "full_evidence": 1 / 2, "candidates": 2.0}
    )  # fmt: skip
    first = figures["top-k(k=2)"]
    assert (first["RR@10"], first["R@20"], first["evidence_recall"]) == (1 / 4, 1 / 4, 1 / 4)
    rows = rows_of(out)
    assert [row["ranking"] for row in rows[:3]] == [["mayor", "tolmere"], ["oro", "kell"], ["kell"]]
    assert rows[0]["RR@10"] == 1 / 2 and "RR@10" not in rows[2]
    # The written run of the retriever gives the same candidates.
    again = evaluate(config_of(beir, methods=methods, run=str(folder / "retriever.run")))
    assert [row["evidence_recall"] for row in again["methods"]] == [row["evidence_recall"] for row in result["methods"]]


def test_without_answers_nothing_is_read_and_the_result_says_why(tmp_path, beir, reader, capsys):
    [[result]] = compare(config_of(beir, reader="first-words", methods="top-k")).values()
    assert reader.asked == []
    assert result.record["skip_reason"] == f"no question of {beir}, test, has reference answers, so nothing is read"
    row = result.methods["top-k"]
    assert row["f1"] is row["em"] is row["rougeL"] is None and row["evidence_recall"] > 0 and row["nDCG@10"] > 0
    results_page({"beir": [result]}).show()
    printed = " ".join(capsys.readouterr().out.split())
    assert "no measures of answers: no question of" in printed and "nDCG@10" in printed
    assert "The retriever's 20 candidates: evidence recall" in printed and "ROUGE" not in printed


RUN = "q1 Q0 b 2 3.5 bm25\nq1 Q0 a 1 7e1 bm25\n\nq2\tQ0\tb\t0\t-1\tbm25\nq2 Q0 c 0 2 bm25\n"


def ids(path, queries=None):
    return {query: list(ranked) for query, ranked in read_run(path, queries).items()}


def test_a_run_is_read_by_score(tmp_path):
    file = tmp_path / "a.run.gz"
    file.write_bytes(gzip.compress(RUN.encode()))
    assert ids(file) == {"q1": ["a", "b"], "q2": ["c", "b"]}
    assert read_run(file, {"q2", "q3"}, limit=1) == {"q2": {"c": 2.0}}


@pytest.mark.parametrize(
    "line",
    [
        "q1 Q0 c 3 1.0", "q1 Q0 c 3 first t", "q1 Q0 c 3 nan t", "q1 Q0 \xff 3 1.0 t",
    ],
)  # fmt: skip
def test_a_broken_line_of_a_run_is_named(tmp_path, line):
    file = tmp_path / "a.run"
    file.write_bytes(RUN.encode() + line.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.run is not"):
        read_run(file)


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), min_size=1, max_size=5)


@given(st.dictionaries(NAMES, st.lists(NAMES, unique_by=escaped, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_written_run_is_read_back(tmp_path_factory, rankings):
    rankings = {escaped(query): passages for query, passages in rankings.items()}
    file = tmp_path_factory.mktemp("runs") / "a.run"
    file.write_text("".join(run_lines(rankings, "my method")), encoding="utf-8", newline="\n")
    assert ids(file) == {query: [escaped(name) for name in passages] for query, passages in rankings.items()}
    for ranked in read_run(file).values():
        assert list(ranked.values()) == sorted(set(ranked.values()), reverse=True)


def test_gold_of_a_question_without_an_answer_only_tells_its_document(tmp_path):
    asked = [{"id": name, "question": f"{name}?", "gold": ["varn"], "answers": [], "split": "test"} for name in "ab"]
    data = write_folder(tmp_path / "data", DOCUMENTS, [asked[0], asked[1] | {"answerable": False}])
    result = evaluate(config_of(data, pool="document", latency_questions=0, out=str(tmp_path / "result.json")))
    assert (result["queries"], result["queries_without_gold"]) == (2, 1)
    assert result["retriever"]["evidence_recall"] == result["methods"][0]["evidence_recall"] == 1
    assert (tmp_path / "result.runs" / "qrels.txt").read_text() == "a 0 varn 1\n"
