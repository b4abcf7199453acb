"""The paper's six rerankers and BGE-M3 by their names on the hub, through every command; small models stand in."""

import json
import logging
import shutil

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("lancedb")

from corag.cli.main import main  # noqa: E402
from corag.models.known import BGE_M3, KNOWN_RERANKERS  # noqa: E402
from experiments.labels.table import questions_path, read_table, write_table  # noqa: E402
from tests.corag.models.worlds import NEED_CODE, small_hub  # noqa: E402

WHERE = ("--device", "cpu,cpu", "--precision", "bf16", "--batch_tokens", "512", "--trust_remote_code")


def run(*arguments):
    return main([str(argument) for argument in arguments])


def teach(table, out):
    """Give each question another best reranker: models with random weights are all of the same use."""
    rows, metadata = read_table(table)
    names = list(KNOWN_RERANKERS)
    numbers = {query: number for number, query in enumerate(dict.fromkeys(row["query"] for row in rows))}
    best = {query: names[number % len(names)] for query, number in numbers.items()}
    write_table(out, [{**row, "rougeL": 0.1 + 0.8 * (row["reranker"] == best[row["query"]])} for row in rows], metadata)
    shutil.copy(questions_path(table), questions_path(out))


@pytest.fixture(scope="module")
def made(tmp_path_factory, small_data):
    """What label, index and train leave: a folder with the table, the index and the checkpoint."""
    folder = tmp_path_factory.mktemp("paper")
    with small_hub(folder / "models", folder / "hub"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORAG_CACHE", str(folder / "cache"))
        # Converting so many models takes longer than running them; other tests do.
        patch.setattr("corag.models.runtime.openvino_has", lambda _: False)
        parts = ["--data", small_data, "--embedder", BGE_M3.name, "--quiet", *WHERE]
        assert run("index", *parts, "--out", folder / "index", "--max_tokens", 24) == 0
        grid = ["--iterations", "1", "--explorations", "0.3", "--cost_weights", "0", "--budget", 48, "--limit", 3]
        label = ["--rerankers", ",".join(KNOWN_RERANKERS), "--index", folder / "index", "--num_candidates", 4]
        assert run("label", *parts, *grid, *label, "--pool", "corpus", "--out", folder / "labels.parquet") == 0
        teach(folder / "labels.parquet", folder / "taught.parquet")
        training = ["--training.epochs", 2, "--training.logger", "none", "--target.metric", "rougeL", "--quiet"]
        train = ["--labels", folder / "taught.parquet", "--out", folder / "agent", "--device", "cpu"]
        assert run("train", *train, *training) == 0
        yield folder


def test_label_measures_each_reranker_and_records_where_it_ran(made):
    rows, metadata = read_table(made / "labels.parquet")
    assert {row["reranker"] for row in rows} == set(KNOWN_RERANKERS)
    assert not [row["error"] for row in rows if row["error"]]
    assert metadata["embedder"] == BGE_M3.name
    models = {row["model"]: row for row in metadata["models"]}
    assert {*KNOWN_RERANKERS, BGE_M3.name, "minilm-reader"} <= set(models)
    assert {row["device"] for row in models.values()} == {"cpu,cpu"}
    assert {row["precision"] for row in models.values()} == {"bf16"}
    assert all(row["backend"].startswith("torch") for row in models.values())


def test_the_checkpoint_says_what_its_labels_were_made_with(made):
    card = (made / "agent" / "checkpoint" / "README.md").read_text()
    assert "models of the labels" in card and f"{BGE_M3.name} on " in card and "1 x cpu, precision 32-true" in card


def test_evaluate_and_ask_take_the_agent(made, small_data, capsys):
    agent = ["--agent", made / "agent" / "checkpoint", "--index", made / "index", *WHERE]
    evaluate = ["--data", small_data, "--split", "test", "--methods", "corag,naive", "--budget", 48, "--quiet"]
    out = made / "result.json"
    asked = ["--embedder", BGE_M3.name, "--pool", "corpus", "--num_candidates", 4]
    assert run("evaluate", *evaluate, *agent, *asked, "--out", out) == 0
    result = json.loads(out.read_text())
    assert [row["over_budget"] for row in result["methods"]] == [0, 0]
    ran = {row["model"] for row in result["models"]}
    assert BGE_M3.name in ran and ran & set(KNOWN_RERANKERS)
    capsys.readouterr()
    assert run("ask", "Which river flows there?", *agent, "--num_candidates", 4, "--strict", "--json") == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["trace"]["reranker"] in KNOWN_RERANKERS
    assert {row["device"] for row in reply["models"]} == {"cpu,cpu"}


def test_without_the_flag_each_reranker_that_needs_it_says_so(made, capsys, caplog):
    arguments = ["--agent", made / "agent" / "checkpoint", "--index", made / "index", "--num_candidates", 4]
    with caplog.at_level(logging.WARNING, logger="corag"):
        assert run("ask", "Which river flows there?", *arguments, "--device", "cpu", "--json") == 0
    passed_over = json.loads(capsys.readouterr().out)["trace"].get("passed_over", {})
    assert set(passed_over) <= set(NEED_CODE)
    warned = [record.getMessage() for record in caplog.records]
    for name, reason in passed_over.items():
        assert "--trust_remote_code" in reason
        assert any(name in message and "--trust_remote_code" in message for message in warned)
    for name in NEED_CODE:
        assert run("ask", "Why?", "--index", made / "index", "--reranker", name, "--device", "cpu") == 2
        assert "--trust_remote_code" in capsys.readouterr().err
