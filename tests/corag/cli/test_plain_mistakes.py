"""Plain mistakes at the command line that once were tracebacks, or passed in silence."""

import json
import shutil

import pyarrow
import pytest
from pyarrow import parquet

from corag.cli.main import MISTAKE, main
from tests.experiments.worlds import (
    DOCUMENTS,
    QUERIES,
    listing,
    result_of,
    save_small_agent,
    write_folder,
    write_labels,
)


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """Return a function that runs a command, which changes nothing, and returns its one line of error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        before = listing(tmp_path)
        assert main([str(argument) for argument in arguments]) == MISTAKE
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if "━" not in line]
        assert captured.out == "" and len(lines) == 1 and lines[0].startswith("error: ")
        assert listing(tmp_path) == before
        return lines[0]

    return run


# --- Numbers ---


@pytest.mark.parametrize("number", [10**9, 2**31, 2**63, 2**70])
def test_more_candidates_than_there_are_chunks_are_all_chunks(small_index, capsys, number):
    arguments = ["--index", str(small_index), "--method", "full", "--reader", "extractive", "--json"]
    assert main(["ask", "How deep is the lake?", *arguments, "--num_candidates", str(number)]) == 0
    many = json.loads(capsys.readouterr().out)["chunks"]
    assert main(["ask", "How deep is the lake?", *arguments, "--num_candidates", "1000"]) == 0
    assert many == json.loads(capsys.readouterr().out)["chunks"]


@pytest.mark.parametrize("budget", [2**53 + 1, 2**64, 10**30])
@pytest.mark.parametrize(
    "command",
    [
        ["ask", "x", "--index", "i", "--budget"],
        ["evaluate", "--data", "d", "--budget"],
        ["evaluate", "--data", "d", "--out", "o", "--budgets"],
        ["label", "--data", "d", "--out", "o", "--budget"],
    ],
)
def test_a_huge_budget_is_refused_as_it_was_written(refused, command, budget):
    written = f"[{budget}]" if command[-1] == "--budgets" else budget
    assert f" must be at most 1000000000000, got {budget};" in refused(*command, written)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["evaluate", "--data", "d", "--seed", -1, "--sample", 1], "seed must be a whole number of at least 0, got -1"),
        (
            ["train", "--labels", "l", "--out", "o", "--split_seed", -1],
            "split_seed must be a whole number",
        ),
    ],
)
def test_a_seed_below_0(refused, arguments, part):
    assert part in refused(*arguments)


# --- Files ---


@pytest.mark.parametrize("content", [bytes(range(256)), "data: d".encode("utf-16"), b"data: \xff"])
@pytest.mark.parametrize("flag", [["--config", "a.yaml"], ["--config=a.yaml"]])
def test_settings_that_are_no_text(refused, tmp_path, content, flag):
    (tmp_path / "a.yaml").write_bytes(content)
    assert "--config 'a.yaml' is no text in UTF-8" in refused("evaluate", *flag)


@pytest.mark.parametrize("gold", [f"varn#{'9' * 5000}-1", f"varn#1-{'9' * 5000}", "varn#\uff12-\uff13"])
def test_evidence_that_no_document_has(tmp_path, caplog, gold):
    data = write_folder(tmp_path / "data", DOCUMENTS, [QUERIES[5] | {"gold": [gold]}, QUERIES[6]])
    assert main(["evaluate", "--data", str(data), "--methods", "top-k", "--reader", "none", "--quiet"]) == 0
    assert "the evidence of 1 questions is not in the corpus" in caplog.text


INPUTS = ["data/corpus.jsonl", "data/queries.jsonl", "notes.md"]


@pytest.mark.parametrize("out", INPUTS)
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "--data", "data", "--methods", "top-k", "--reader", "none", "--out"],
        ["evaluate", "--data", "data", "--methods", "top-k", "--reader", "none", "--figure"],
        ["label", "--data", "data", "--rerankers", "bm25", "--iterations", "1", "--out"],
        ["report", "--results", "r.json", "--out"],
    ],
)
def test_no_file_is_overwritten_that_the_command_did_not_write(refused, tmp_path, command, out):
    write_folder(tmp_path / "data")
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "r.json").write_text(json.dumps(result_of()))
    said = refused(*command, out)
    assert f"out is {out!r}, a file that this command did not write" in said and "give another name" in said


def test_a_report_does_not_overwrite_its_result(refused, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(result_of()))
    assert "did not write" in refused("report", "--results", "r.json", "--out", "r.json")


@pytest.mark.slow
def test_commands_overwrite_what_they_wrote(tmp_path, small_data, capsys):
    result, page = tmp_path / "r.json", tmp_path / "r.html"
    for method in ("top-k", "full"):
        arguments = ["--methods", method, "--reader", "none", "--quiet", "--out", str(result)]
        assert main(["evaluate", "--data", str(small_data), *arguments]) == 0
        assert json.loads(result.read_text())["methods"][0]["method"] == method
        assert main(["report", "--results", str(result), "--out", str(page)]) == 0
        assert method in page.read_text()


@pytest.mark.parametrize("methods", ["top-k,top-k", "top-k, mmr, top-k", "top-k(k=3),top-k( k = 3 )"])
def test_a_method_that_stands_twice(refused, small_data, methods):
    said = refused("evaluate", "--data", small_data, "--methods", methods, "--reader", "none")
    assert "method 'top-k" in said and "stands twice in methods; leave one out" in said


# --- Indexes ---


@pytest.mark.slow
def test_damaged_files_of_an_index(tmp_path, small_index, capsys):
    files = [path.relative_to(small_index) for path in small_index.rglob("*") if path.is_file()]
    place = tmp_path / "index"
    arguments = ["ask", "How deep?", "--index", str(place), "--method", "top-k", "--reader", "extractive"]
    spoils = {
        "junk": lambda content: b"junk" * 100,
        "nothing": lambda content: b"",
        "other bytes": lambda content: bytes(
            byte ^ (37 if place % 20 == 7 else 0) for place, byte in enumerate(content)
        ),
        "the half": lambda content: content[: len(content) // 2],
    }
    num_refused = 0
    for path in files:
        for spoil in spoils.values():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(small_index, place)
            (place / path).write_bytes(spoil((place / path).read_bytes()))
            status = main(arguments)
            said = capsys.readouterr().err
            # Old versions and transactions are not needed for reading.
            assert status in (0, MISTAKE)
            assert status == 0 or (said.startswith("error: ") and said.count("\n") == 1)
            num_refused += status == MISTAKE
    assert num_refused >= 10


# --- Label tables ---


def train(refused, path):
    return refused("train", "--labels", path, "--out", "agent", "--training.logger", "none", "--quiet")


def spoilt(path, change, suffix=""):
    """Write a label table whose Arrow table, or that of its questions, is changed."""
    write_labels(path)
    file = path.with_suffix(f"{suffix}.parquet")
    table = parquet.read_table(file)
    changed = change(table)
    metadata = changed.schema.metadata if changed.schema.metadata else table.schema.metadata
    parquet.write_table(changed.replace_schema_metadata(metadata), file)


def having(name, value, kind=None):
    return lambda table: table.set_column(
        table.schema.get_field_index(name), name, pyarrow.array([value] * table.num_rows, kind)
    )


def without(name):
    return lambda table: table.drop_columns([name])


ROWS = {
    **{
        f"no {name}": (without(name), f"has no column {name!r}") for name in ("reranker", "query", "iterations", "data")
    },
    "no tokens": (without("cost_tokens"), "has no column 'cost_tokens'"),
    "text": (having("rougeL", "x"), "holds string in column 'rougeL', which is for a number"),
    "list": (having("rougeL", [1.0]), "in column 'rougeL', which is for a number"),
    "number": (having("reranker", 3), "in column 'reranker', which is for a string"),
    "null": (having("iterations", None, pyarrow.int64()), "has no iterations in 48 rows"),
    "budget": (having("budget_tokens", 0), "budget_tokens is 0"),
}
QUESTIONS = {
    **{f"no {name}": (without(name), f"has no column {name!r}") for name in ("query", "group", "query_vector")},
    "text": (having("query_vector", "x"), "in column 'query_vector', which is for a list"),
    "texts": (having("query_vector", ["x"]), "in column 'query_vector', which is for a list"),
    "null": (having("query_vector", None, pyarrow.list_(pyarrow.float32())), "has no query_vector in 12 rows"),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_label_table_of_another_form(refused, tmp_path, kind):
    change, part = ROWS[kind]
    spoilt(tmp_path / "l.parquet", change)
    assert part in train(refused, "l.parquet")


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_table_of_questions_of_another_form(refused, tmp_path, kind):
    change, part = QUESTIONS[kind]
    spoilt(tmp_path / "l.parquet", change, ".questions")
    assert part in train(refused, "l.parquet")


@pytest.mark.parametrize("metadata", [[1], "x", None, {}, {"format_version": 2}, {"embedder": "m"}])
def test_a_label_table_with_other_metadata(refused, tmp_path, metadata):
    spoilt(tmp_path / "l.parquet", lambda table: table.replace_schema_metadata({b"corag": json.dumps(metadata)}))
    assert "l.parquet" in (said := train(refused, "l.parquet")) and "label again" in said


# --- Results ---


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"queries": 0}, "queries must be a whole number of at least 1, got 0; a report needs at least one question"),
        ({"queries": "x"}, "queries"),
        ({"budget_tokens": None}, "budget_tokens"),
        ({"versions": None}, "versions is None"),
        ({"versions": [1]}, "versions is [1]"),
        ({"split": 3}, "split is 3"),
        ({"measures": 3}, "measures is 3"),
        ({"methods": {"a": 1}}, "methods is {'a': 1}"),
        ({"f1": "high"}, "f1 of method 'top-k' is 'high'"),
        ({"f1": [1]}, "f1 of method 'top-k' is [1]"),
        ({"f1": float("nan")}, "f1 of method 'top-k' is nan"),
        ({"f1": float("inf")}, "f1 of method 'top-k' is inf"),
        ({"cost_tokens": "x"}, "cost_tokens of method 'top-k'"),
        ({"failed": "x"}, "failed of method 'top-k' is 'x'"),
        ({"method": 3}, "a method is called 3"),
        ({"method": ["a"]}, "a method is called ['a']"),
        ({"method": "corag"}, "a method stands twice among corag, corag"),
    ],
)
def test_a_result_that_holds_something_else(refused, tmp_path, change, part):
    result = result_of()
    if set(change) <= {*result, "measures"}:
        result |= change
    else:
        result["methods"][0] |= change
    (tmp_path / "r.json").write_text(json.dumps(result))
    said = refused("report", "--results", "r.json")
    assert "r.json is not a result of `corag evaluate --out`" in said and part in said


@pytest.mark.parametrize("content", ["[" * 100_000, "9" * 5000, '{"methods": ' + "[" * 5000])
def test_json_that_goes_too_deep_or_too_far(refused, tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    assert "r.json is not a result" in refused("report", "--results", "r.json")


def test_a_result_that_is_named_twice(refused, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(result_of()))
    assert "give each file once" in refused("report", "--results", "r.json,r.json")


# --- What a checkpoint may ask for ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "method"),
    [
        ({"rerankers": ("somebody/model",)}, "corag"),
        ({"rerankers": ("somebody/model",)}, "corag-fixed"),
        ({"embedder": "somebody/embedder"}, "corag"),
    ],
)
def test_an_agent_does_not_fetch_models(refused, tmp_path, small_index, monkeypatch, change, method):
    def asked(*_, **__):
        raise AssertionError("the hub is asked")

    monkeypatch.setattr("requests.Session.request", asked)
    monkeypatch.setattr("httpx.Client.send", asked)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    save_small_agent(tmp_path / "agent", **change)
    strict = ["--strict"] if method == "corag" else []
    said = refused("ask", "How deep?", "--index", small_index, "--method", method, "--agent", "agent", *strict)
    assert "somebody/" in said and "hf download somebody/" in said
