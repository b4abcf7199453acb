"""The command line: flags, help, lists, output and exit status. Bad input: `tests/campaign/test_bad_inputs.py`."""

import dataclasses
import json
import re
import subprocess
import sys
import time
from typing import get_type_hints

import pytest

import corag
from corag import registry
from corag.cli.main import COMMANDS, INTERRUPTED, MISTAKE, main
from corag.errors import InputError
from corag.optional import load
from corag.registry import READERS
from tests.fakes import FakeReader
from tests.paths import ROOT
from tests.processes import environment

QUESTION = "How deep is the lake in which the Oro ends?"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments):
    """Run a command in this process; return its exit status."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return stop.code


def names_of(settings_type):
    """All settings of a command, those of nested dataclasses with a dot."""
    hints = get_type_hints(settings_type)
    for field in dataclasses.fields(settings_type):
        if field.name == "batch_tokens":  # a setting in Python alone
            continue
        inner = names_of(hints[field.name]) if dataclasses.is_dataclass(hints[field.name]) else ()
        yield from [f"{field.name}.{name}" for name in inner] or [field.name]


def test_the_commands_are_those_of_the_design(capsys):
    first_words = {name.partition(" ")[0] for name in COMMANDS}
    experiments = {"demo", "data", "tune", "label", "train", "sweep", "evaluate", "reproduce", "report", "bench"}
    assert first_words == experiments | {"index", "ask", "chat", "serve", "list", "doctor"}
    assert run("--help") == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in COMMANDS)
    for group in ("data", "train"):
        assert run(group, "--help") == 0
        said = capsys.readouterr().out
        assert all(f"  {name} " in said for name in COMMANDS if name.startswith(f"{group} "))
    assert run("--version") == 0
    assert corag.__version__ in capsys.readouterr().out
    assert run() == MISTAKE


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_names_and_explains_settings(name, capsys):
    command = COMMANDS[name]
    settings_type = load(command.settings)
    for flag, expected in (("--help", command.shown.split()), ("--help-all", names_of(settings_type))):
        assert run(*name.split(), flag) == 0
        captured = capsys.readouterr()
        assert flag == "--help-all" or len(expected) <= 10
        text = " ".join(captured.out.split())
        assert captured.err == "" and settings_type.__doc__.split("\n", 1)[0] in text
        # A setting whose type cannot be resolved would take any value.
        assert "Unvalidated" not in text
        for setting in expected:
            assert re.search(rf" (--)?{re.escape(setting)}( \S+)? [A-Z`][^(]{{5,}}.*?\(|--{setting} CONFIG", text), (
                setting
            )


def test_a_switch_needs_no_value_and_flags_may_have_dashes(small_index, capsys):
    for switch in (["--json"], ["--json=true", "--num-candidates=3"]):
        assert run("ask", *switch, QUESTION, "--index", small_index) == 0
        assert json.loads(capsys.readouterr().out)["question"] == QUESTION
    assert run("ask", QUESTION, "--index", small_index, "--json", "false") == 0
    assert "[1] " in capsys.readouterr().out


def test_settings_may_stand_in_a_file_and_flags_go_before_it(tmp_path, small_data, capsys):
    (tmp_path / "evaluate.yaml").write_text(f"data: {small_data}\nmethods: top-k\nbudget: 40\nlimit: 1\n")
    out = tmp_path / "r.json"
    assert run("evaluate", "--config", tmp_path / "evaluate.yaml", "--budget", "32", "--out", out, "--quiet") == 0
    result = json.loads(out.read_text())
    assert (result["budget_tokens"], result["queries"], result["config"]["methods"]) == (32, 1, ["top-k"])
    capsys.readouterr()
    assert run("evaluate", "--config", tmp_path / "evaluate.yaml", "--print_config") == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    assert run("evaluate", "--config", tmp_path / "printed.yaml", "--out", out, "--quiet") == 0
    assert json.loads(out.read_text())["budget_tokens"] == 40


def test_a_stopped_command_says_that_it_goes_on(small_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(READERS.parts, "interrupted", lambda: FakeReader(KeyboardInterrupt()))
    arguments = ["--methods", "top-k", "--reader", "interrupted", "--out", tmp_path / "r.json"]
    assert run("evaluate", "--data", small_data, *arguments) == INTERRUPTED
    assert "stopped; run the same command again to resume" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.journal.jsonl"]


def test_an_error_is_raised_for_who_asks_for_it():
    with pytest.raises(InputError):
        run("--debug", "list", "nothing")


@pytest.mark.slow
def test_a_reader_of_a_process_of_its_own_that_goes_away_is_no_error(small_index):
    command = [sys.executable, "-m", "corag.cli.main", "ask", QUESTION, "--index", str(small_index), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == MISTAKE


@pytest.mark.parametrize("content", [None, b"", b"- a", b"data: [", b"\xff"])
def test_what_is_no_settings_file_is_said_plainly(content, tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    assert run("evaluate", "--config", file) == MISTAKE
    said = capsys.readouterr().err
    assert said.startswith("error: config: expected a YAML file of settings") and "arser key" not in said


def test_a_settings_file_makes_no_objects(tmp_path, capsys):
    made = tmp_path / "made"
    code = {"class_path": "subprocess.Popen", "init_args": {"args": f"touch {made}", "shell": True}}
    (tmp_path / "settings.yaml").write_text(json.dumps({"where": {"anything": code}}))
    assert run("ask", "x", "--index", tmp_path / "none", "--config", tmp_path / "settings.yaml") == MISTAKE
    time.sleep(0.2)
    assert not made.exists(), capsys.readouterr().err


def test_what_is_at_hand(tmp_path, capsys, monkeypatch):
    # Neither caches nor servers of this machine.
    variables = {"CORAG_CACHE": tmp_path / "cache", "CORAG_DATA": tmp_path / "data", "OLLAMA_HOST": "127.0.0.1:9"}
    for name, value in {**variables, "OPENAI_API_KEY": "secret-123", "COLUMNS": 300}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "data" / "mine").mkdir(parents=True)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "minilm-evidence" in printed and "whole, in " in printed and "mine" in printed
    assert "no answer (" in printed and "not contacted" in printed and "secret-123" not in printed


def test_all_parts_are_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for table in registry.TABLES:
        assert f"{table.kind}s" in printed
        assert all(f"  {name} " in printed for name in table.names)


def test_a_kind_alone_and_the_settings_of_a_part(capsys):
    assert main(["list", "readers"]) == 0
    assert "extractive" in (printed := capsys.readouterr().out) and "top-k" not in printed
    assert main(["list", "--part", "extractive"]) == 0
    printed = capsys.readouterr().out
    assert "reader extractive(" in printed and "summarizer extractive(" in printed
    assert main(["list", "selector", "top-k"]) == 0
    assert "selector top-k(tokenizer=..., unit=passage, max_units=200, order=value, k=5)" in capsys.readouterr().out
    assert main(["list", "readers", "top-k"]) == main(["list", "nothing"]) == MISTAKE
