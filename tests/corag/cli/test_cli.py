"""The command line: flags, help, output and exit status. Bad input: `tests/campaign/test_bad_inputs.py`."""

import dataclasses
import io
import json
import logging
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import get_type_hints

import pytest
from rich.console import Console

import corag
from corag.ambient import counted, showing
from corag.cli import console
from corag.cli.console import progress
from corag.cli.main import COMMANDS, INTERRUPTED, MISTAKE, main
from corag.errors import InputError
from corag.optional import load
from corag.registry import READERS
from tests.fakes import FixedReader
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
    assert all(f"  {name} " in said for name in first_words)
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


def test_brief_help_is_in_the_order_of_use_and_names_no_types(capsys):
    assert run("ask", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    places = [text.index(f" --{name} ") for name in ("question", "index", "budget", "json")]
    assert places == sorted(places) and "(required)" in text and "(default: 1024)" in text
    assert not any(word in text for word in ("type:", "null", "--print_config"))
    assert run("data", "get", "--help") == 0
    assert " --from FROM " in capsys.readouterr().out


def test_a_table_that_is_too_wide_for_the_screen_is_a_list(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=40, color_system=None)
    monkeypatch.setattr(console, "stdout", lambda: screen)
    rows = [{"name": "a", "what": "long words " * 9, "more": None}, {"name": "b", "what": "short", "more": 2}]
    console.print_table(rows, {"name": "name", "what": "what it is", "more": "more"})
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= 40 and lines[0] == "a" and lines[1].startswith("  what it is: long words")
    assert lines[-3:] == ["b", "  what it is: short", "  more: 2"]


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


@pytest.mark.slow
def test_ask_says_why_nothing_was_chosen(small_index, capsys):
    assert run("ask", QUESTION, "--index", small_index, "--budget", 1, "--unit", "passage") == 0
    said = capsys.readouterr().out
    assert "Nothing was chosen." in said and "cost more than the budget of 1" in said and "0 of 1 tokens" in said


def test_markup_in_texts_is_text(tmp_path, capsys):
    corpus = {"id": "[red]a", "title": "[b]", "text": "The [bold]lake[/bold] is [/] 310 metres deep."}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "corpus.jsonl").write_text(json.dumps(corpus))
    assert run("index", "--data", tmp_path / "data", "--out", tmp_path / "index", "--quiet") == 0
    assert run("ask", "How [i]deep[/i]?", "--index", tmp_path / "index", "--reader", "extractive") == 0
    said = capsys.readouterr().out
    assert "The [bold]lake[/bold] is [/] 310 metres deep." in said and "[red]a: [b]" in said


def test_a_stopped_command_says_that_it_goes_on(small_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(READERS.parts, "interrupted", lambda: FixedReader(KeyboardInterrupt()))
    arguments = ["--methods", "top-k", "--reader", "interrupted", "--out", tmp_path / "r.json"]
    assert run("evaluate", "--data", small_data, *arguments) == INTERRUPTED
    assert "stopped; run the same command again to resume" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r.journal.jsonl"]


@pytest.mark.slow
def test_in_a_process_of_its_own(small_index):
    command = [sys.executable, "-m", "corag.cli.main", "ask", " ", "--index", str(small_index)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    assert (done.returncode, done.stdout) == (MISTAKE, "")
    assert done.stderr == "error: the question is empty (' '); give a question with at least one word\n"
    with pytest.raises(InputError):
        run("--debug", "ask", " ", "--index", small_index)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(small_index):
    command = [sys.executable, "-m", "corag.cli.main", "ask", QUESTION, "--index", str(small_index), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == MISTAKE


def test_progress_is_a_bar_on_a_terminal_and_can_be_silenced(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    for quiet in (False, True):
        with progress("work", quiet=quiet) as report:
            report(0, 3)
            report(3, 3)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("work" in captured.err and "3/3" in captured.err) != quiet


def test_progress_in_a_log_is_a_line_every_half_minute_and_nothing_before_an_error(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with pytest.raises(ValueError), progress("work") as report:
        for now in (101.0, 129.0, 131.0, 140.0, 162.0):
            report(int(now), 2000)
        raise ValueError
    assert capsys.readouterr().err.splitlines() == ["work: 131 of 2,000 after 31 s", "work: 162 of 2,000 after 62 s"]


@contextmanager
def told(reports, description):
    reports.append(description)
    yield lambda done, total: reports.append((done, total))


def test_counted_items_are_reported_where_somebody_listens():
    reports = []
    assert list(counted("quiet", "ab")) == ["a", "b"]
    with showing(lambda description: told(reports, description)):
        assert list(counted("work", {"a": 1, "b": 2}.items())) == [("a", 1), ("b", 2)]
        assert list(counted("nothing", [])) == []
    assert reports == ["work", (0, 2), (1, 2), "nothing"]


@pytest.mark.parametrize(
    ("arguments", "setting"), [(("train", "agent", "--labels", "x"), "training"), (("ask", "x"), "where")]
)
def test_a_settings_file_makes_no_objects(tmp_path, capsys, arguments, setting):
    made = tmp_path / "made"
    code = {"class_path": "subprocess.Popen", "init_args": {"args": f"touch {made}", "shell": True}}
    (tmp_path / "settings.yaml").write_text(json.dumps({setting: {"anything": code}}))
    out = ("--out", tmp_path / "out") if setting == "training" else ("--index", tmp_path / "none")
    assert run(*arguments, *out, "--config", tmp_path / "settings.yaml") == MISTAKE
    time.sleep(0.2)
    assert not made.exists(), capsys.readouterr().err


def test_a_long_message_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert run("--version") == 0
    logging.getLogger("corag").info("send it with: wandb sync /%s", "folder/" * 40)
    assert f"INFO     send it with: wandb sync /{'folder/' * 40}\n" in capsys.readouterr().err
