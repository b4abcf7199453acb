import json

import numpy as np
import pytest

import corag
from experiments.labels.table import questions_path, read_questions
from experiments.protocol.sealed import main, read_register
from experiments.routing import prepare as prepare_module
from experiments.routing.arrays import times_path
from experiments.routing.prepare import main as prepare
from experiments.tune.label import main as label
from experiments.tune.table import read_labels
from tests.experiments.worlds import QUERIES, write_folder

pytestmark = pytest.mark.slow

SEALED = ("q2", "q6", "q11")
BOTH = ["--challenger", "naive(reranker=bm25)", "--baseline", "text > top-k(k=2)", "--reader", "first-words"]


@pytest.fixture
def world(tmp_path, reader):
    """One kind of twelve questions, three of them sealed; returns the flags that name it."""
    data = write_folder(tmp_path / "island")
    (tmp_path / "kinds.yaml").write_text(
        f"kinds:\n- {{name: island, data: {data}, split: any, pool: candidates}}\nchoosing: 0.5\n"
    )
    (tmp_path / "sealed.txt").write_text("".join(f"island {name}\n" for name in SEALED))
    return ["--kinds", str(tmp_path / "kinds.yaml"), "--sealed", str(tmp_path / "sealed.txt"), "--budget", "64"]


@pytest.fixture
def sealed(world, tmp_path):
    """Runs the sealed command, with files of its own."""
    files = {name: str(tmp_path / name) for name in ("register", "journal", "labels")}
    flags = [text for name, path in files.items() for text in (f"--{name}", path)]
    return lambda *arguments: main([*world, *flags, *BOTH, "--quiet", "true", *arguments])


def labelled(world, tmp_path, *arguments):
    return label([*world, "--out", str(tmp_path / "labels"), "--reader", "first-words", "--quiet", "true", *arguments])


def test_a_look_measures_the_sealed_questions_and_stands_in_the_register(sealed, tmp_path, capsys):
    assert sealed("--why", "first try") == 0
    assert sealed("--why", "second try") == 0
    first, second = read_register(tmp_path / "register")
    assert (first["why"], second["why"]) == ("first try", "second try")
    assert first["leads"]["island"]["questions"] == len(SEALED)
    assert first["leads"] == second["leads"]
    assert {"date", "commit", "challenger", "baseline", "versions", "means"} <= first.keys()
    assert "look 2" in capsys.readouterr().out
    assert not list(tmp_path.glob("journal*"))


def test_a_look_without_a_reason_and_one_at_nothing_new_are_refused(sealed, tmp_path, capsys):
    assert sealed() == 2
    assert "say in a few words what this look is for" in capsys.readouterr().err
    assert sealed("--why", "x", "--challenger", "text > top-k(k=2)") == 2
    assert "give two configurations" in capsys.readouterr().err
    assert not (tmp_path / "register").exists()


def test_labels_leave_sealed_questions_out_and_go_on_where_they_stopped(world, tmp_path):
    configurations = ["--configurations", "naive(reranker=bm25), text > top-k(k=2)"]
    assert labelled(world, tmp_path, *configurations, "--training", "2", "--choosing", "1") == 0
    journal = tmp_path / "labels.island.jsonl"
    before = journal.read_text()
    assert labelled(world, tmp_path, *configurations) == 0
    assert journal.read_text().startswith(before)
    rows = read_labels(tmp_path / "labels")
    groups = {row["group"] for row in rows}
    assert not {row["query"] for row in rows} & set(SEALED)
    assert {row["configuration"] for row in rows} == {"naive(reranker=bm25)", "text > top-k(k=2)"}
    assert {row["part"] for row in rows} <= {"training", "choosing"}
    assert len(groups) > 3
    with_answers = [row for row in rows if "f1" in row]
    assert len(with_answers) == len(rows)
    answered = {query["id"] for query in QUERIES if query["answers"]} - set(SEALED)
    assert {row["query"] for row in rows} <= answered


def test_the_power_is_known_from_labels_without_a_look(sealed, world, tmp_path, capsys):
    assert sealed("--power_only", "true") == 2
    assert "the power is not known" in capsys.readouterr().err
    labelled(world, tmp_path, "--configurations", "naive(reranker=bm25), text > top-k(k=2)")
    capsys.readouterr()
    assert sealed("--power_only", "true") == 0
    assert "would be seen in four of five runs" in capsys.readouterr().out
    assert not (tmp_path / "register").exists()


def test_the_register_is_one_json_object_a_line(sealed, tmp_path):
    sealed("--why", "with\na line break")
    [line] = (tmp_path / "register").read_text().splitlines()
    assert json.loads(line)["why"] == "with\na line break"


def test_what_a_router_needs_stands_beside_the_labels_and_is_made_once(world, tmp_path, capsys, monkeypatch):
    configurations = ["naive(reranker=bm25)", "text > top-k(k=2)"]
    labelled(world, tmp_path, "--configurations", ", ".join(configurations), "--training", "2", "--choosing", "1")
    flags = ["--labels", str(tmp_path / "labels"), *world[:2], "--timed", "1", "--quiet", "true"]
    assert prepare(flags) == 0
    rows, metadata = read_questions(tmp_path / "labels")
    assert {row["query"] for row in rows} == {row["query"] for row in read_labels(tmp_path / "labels")}
    asked = {query["id"]: query["question"] for query in QUERIES}
    for row in rows:
        [vector] = corag.embedder().embed([asked[row["query"]]])
        np.testing.assert_allclose(row["query_vector"], vector, atol=1e-3)
        assert 0 < np.linalg.norm(row["candidates_vector"]) <= 1
    seconds = json.loads(times_path(tmp_path / "labels").read_text())["island"]
    # What retrieves by itself is not timed with the others.
    assert seconds.keys() == {"naive(reranker=bm25)"} and seconds["naive(reranker=bm25)"] > 0
    before = questions_path(tmp_path / "labels").read_bytes()
    monkeypatch.setattr(prepare_module, "embedded", None)  # whoever embeds again fails
    assert prepare(flags) == 0
    assert questions_path(tmp_path / "labels").read_bytes() == before and metadata["embedder"] == "minilm"
    write_folder(tmp_path / "island", queries=QUERIES[:1])
    capsys.readouterr()
    assert prepare(flags) == 2
    assert "of 'island', which" in capsys.readouterr().err
