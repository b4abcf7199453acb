"""A table of what users get wrong: each row ends in one line that names value, rule and remedy, and changes no file.

Rows of commands, and of parts by name, stand in `bad_inputs.txt`, `arguments => part | part` with what the error has to
say; those of files that hold something else than they should, and of Python, below. More stand beside the tests of what
they are about.
"""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import corag
from corag import Candidate, Chunk
from corag.cli.main import MISTAKE, main
from corag.errors import CoragError
from tests.experiments.worlds import listing, result_of, save_small_agent, write_folder, write_labels

pytestmark = pytest.mark.slow


def rows():
    """Yield the arguments of each command, and what its error says."""
    for line in Path(__file__).with_name("bad_inputs.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            arguments, _, parts = line.partition(" => ")
            yield arguments, parts.split(" | ")


@pytest.fixture(scope="module")
def world(tmp_path_factory, small_index):
    """A folder with data, index, agent, labels and a result that are right, and some files that are not."""
    folder = tmp_path_factory.mktemp("bad inputs")
    write_folder(folder / "data")
    save_small_agent(folder / "agent")
    write_labels(folder / "labels.parquet")
    shutil.copytree(small_index, folder / "index")
    (folder / "r.json").write_text(json.dumps(result_of()))
    (folder / "notes.md").write_text("# Mine\n\nSome words.\n")
    (folder / "empty.txt").touch()
    (folder / "folder").mkdir()
    for name, content in YAML.items():
        (folder / f"{name}.yaml").write_text(content)
    return folder


YAML = {
    "bad": "data: [\n",
    "list": "- a\n- b\n",
    "unknown": "dta: x\n",
    "number": "3\n",
    "nothing": "\n",
    "wrong-type": "data: 3\n",
    "no-key": "? [a]: b\n",
    "numbered": "{1: 2}\n",
    "endless": "a: &a [*a]\n",
    "deep": f"data: {'[' * 3000}{']' * 3000}\n",
    "own-config": "data: data\nconfig: other.yaml\n",
    "code": 'data: !!python/object/apply:os.system ["touch pwned"]\n',
    "tabs": "data:\n\t- x\n",
}


@pytest.fixture
def refused(world, capsys, monkeypatch):
    """Return a function that runs a command, which changes nothing, and returns its one line of error."""
    monkeypatch.chdir(world)
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)

    def run(arguments):
        before = listing(world)
        assert main(shlex.split(arguments)) == MISTAKE
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if not ("━" in line or ":00:" in line)]
        assert captured.out == "" and len(lines) == 1 and lines[0].startswith("error: ")
        assert listing(world) == before
        return lines[0]

    return run


def check(said, parts):
    missing = [part for part in parts if part not in said]
    assert not missing, f"{said!r} lacks {missing}"


DOORS = ("selector", "reranker", "reader", "tokens")
COMMANDS = {arguments: parts for arguments, parts in rows() if arguments.split()[0] not in DOORS}
PARTS = {arguments: parts for arguments, parts in rows() if arguments.split()[0] in DOORS}


@pytest.mark.parametrize("arguments", COMMANDS)
def test_bad_arguments(refused, figure, arguments):
    check(refused(arguments), COMMANDS[arguments])
    figure("bad inputs: commands", 1)


@pytest.mark.parametrize("spelling", PARTS)
def test_bad_parts(world, monkeypatch, figure, spelling):
    monkeypatch.chdir(world)
    door, _, part = spelling.partition(" ")
    with pytest.raises(CoragError) as caught:
        getattr(corag, door)(part)
    assert "\n" not in str(caught.value)
    check(str(caught.value), PARTS[spelling])
    figure("bad inputs: parts", 1)


# --- Files ---


def line(text):
    """The first line of a file is another one."""
    return lambda content: text.encode() + b"\n" + content.split(b"\n", 1)[1]


def having(**changes):
    """The first line of a file of JSON lines, or a JSON file, holds something else; None leaves a field out."""

    def changed(content):
        first, _, rest = content.partition(b"\n") if b"\n{" in content[1:] else (content, b"", b"")
        row = {name: value for name, value in (json.loads(first) | changes).items() if value is not None}
        return json.dumps(row).encode() + b"\n" + rest

    return changed


CORPUS, QUERIES, CONFIG, WEIGHTS = (
    "data/corpus.jsonl", "data/queries.jsonl", "agent/config.json", "agent/model.safetensors"
)  # fmt: skip
EVALUATE = "evaluate --data data --split train --methods top-k --reader none --out o.json --quiet"
INDEX = "index --data data --out new --quiet"
ASK = "ask x --index index --agent agent"
TRAIN = "train --labels labels.parquet --out new --training.logger none --quiet"
REPORT = "report --results r.json"
FILES = {
    "corpus: a number": (CORPUS, line("3"), INDEX, ["corpus.jsonl, line 1"]),
    "corpus: null": (CORPUS, line("null"), INDEX, ["corpus.jsonl, line 1"]),
    "corpus: no id": (CORPUS, having(id=None), INDEX, ["corpus.jsonl, line 1", "'id' is missing"]),
    "corpus: title of a list": (CORPUS, having(title=["Varn"]), INDEX, ["corpus.jsonl, line 1"]),
    "corpus: too deep": (CORPUS, line("[" * 100_000), INDEX, ["corpus.jsonl, line 1"]),
    "corpus: two objects": (CORPUS, line('{"id": "a", "text": "x"}{"id": "b", "text": "x"}'), INDEX, ["line 1"]),
    "corpus: a huge number": (CORPUS, line('{"id": "a", "text": ' + "9" * 5000 + "}"), INDEX, ["line 1"]),
    "corpus: half a character": (CORPUS, lambda content: b'{"id": "a", "text": "\xc3"}\n', INDEX, ["not UTF-8"]),
    "corpus: UTF-16": (CORPUS, lambda content: content.decode().encode("utf-16"), INDEX, ["not UTF-8"]),
    "corpus: zeros": (CORPUS, lambda content: bytes(1000), INDEX, ["line 1"]),
    "queries: nothing": (QUERIES, lambda content: b"", EVALUATE, ["queries.jsonl is empty"]),
    "queries: a list": (QUERIES, line("[]"), EVALUATE, ["queries.jsonl, line 1", "list"]),
    "queries: no id": (QUERIES, having(id=None), EVALUATE, ["line 1", "'id' is missing"]),
    "queries: no question": (QUERIES, having(question=None), EVALUATE, ["line 1", "'question' is missing"]),
    "queries: question of a list": (QUERIES, having(question=["x"]), EVALUATE, ["line 1", "'question'"]),
    "queries: no answers": (QUERIES, having(answers=[]), EVALUATE + " --judge nope", ["reader 'nope'"]),
    "queries: answers of numbers": (QUERIES, having(answers=[310]), EVALUATE, ["line 1", "'answers'"]),
    "queries: answers of a number": (QUERIES, having(answers=310), EVALUATE, ["line 1", "'answers'"]),
    "queries: gold of a text": (QUERIES, having(gold="varn"), EVALUATE, ["line 1", "'gold'"]),
    "queries: candidates of a text": (QUERIES, having(candidates="varn"), EVALUATE, ["line 1", "'candidates'"]),
    "queries: a split of a number": (QUERIES, having(split=3), EVALUATE, ["line 1", "'split'"]),
    "queries: half a line": (QUERIES, lambda content: content[:-20], EVALUATE, ["not JSON"]),
    "queries: a surrogate": (QUERIES, having(question="\ud800?"), EVALUATE, ["line 1", "valid Unicode"]),
    "config: a list": (CONFIG, lambda content: b"[]", ASK, ["config.json", "train again"]),
    "config: nothing in it": (CONFIG, lambda content: b"{}", ASK, ["config.json"]),
    "config: too deep": (CONFIG, lambda content: b"[" * 100_000, ASK, ["config.json", "train again"]),
    "config: not UTF-8": (CONFIG, lambda content: b"\xff\xfe", ASK, ["config.json", "train again"]),
    "config: another version": (CONFIG, having(format_version=99), ASK, ["config.json", "99"]),
    "config: a setting too many": (CONFIG, having(color="red"), ASK, ["config.json", "color"]),
    "config: features of a number": (CONFIG, having(feature_dim=0), ASK, ["feature_dim"]),
    "config: features of a text": (CONFIG, having(feature_dim="many"), ASK, ["feature_dim"]),
    "config: unknown features": (CONFIG, having(features=["color"]), ASK, ["color"]),
    "config: no rerankers": (CONFIG, having(rerankers=[]), ASK, ["rerankers"]),
    "config: a reranker twice": (CONFIG, having(rerankers=["bm25", "bm25"]), ASK, ["rerankers"]),
    "config: a reranker of a number": (CONFIG, having(rerankers=["bm25", 3]), ASK, ["rerankers"]),
    "config: more rerankers": (CONFIG, having(rerankers=["bm25", "a", "b"]), ASK, ["does not fit config.json"]),
    "config: empty layers": (CONFIG, having(hidden=[0]), ASK, ["hidden"]),
    "config: huge layers": (CONFIG, having(hidden=[10**9]), ASK, ["does not fit config.json"]),
    "config: no embedder": (CONFIG, having(embedder=3), ASK, ["embedder"]),
    "config: an unknown choice": (CONFIG, having(choice="best"), ASK, ["choice", "best"]),
    "config: ranges of text": (CONFIG, having(ranges="wide"), ASK, ["ranges"]),
    "weights: nothing": (WEIGHTS, lambda content: b"", ASK, ["model.safetensors", "train again"]),
    "weights: the half": (WEIGHTS, lambda content: content[: len(content) // 2], ASK, ["model.safetensors"]),
    "weights: a huge header": (WEIGHTS, lambda content: b"\xff" * 8 + content[8:], ASK, ["model.safetensors"]),
    "weights: junk in the header": (WEIGHTS, lambda content: content[:8] + b"x" * 40, ASK, ["model.safetensors"]),
    "weights: no numbers": (
        WEIGHTS, lambda content: content[:-400] + np.full(100, np.nan, "<f4").tobytes(), ASK, ["model.safetensors"]
    ),
    "labels: nothing": ("labels.parquet", lambda content: b"", TRAIN, ["labels.parquet is not a label table"]),
    "labels: the half": ("labels.parquet", lambda content: content[:99], TRAIN, ["labels.parquet", "corag label"]),
    "labels: the end is junk": ("labels.parquet", lambda content: content[:-9] + b"x" * 9, TRAIN, ["labels.parquet"]),
    "questions: nothing": ("labels.questions.parquet", lambda content: b"", TRAIN, ["labels.questions.parquet"]),
    "result: nothing": ("r.json", lambda content: b"", REPORT, ["r.json is not a result"]),
    "result: a list": ("r.json", lambda content: b"[]", REPORT, ["r.json is not a result"]),
    "result: no methods": ("r.json", having(methods=[]), REPORT, ["r.json is not a result"]),
    "result: the half": ("r.json", lambda content: content[:99], REPORT, ["r.json is not a result"]),
    "result: not UTF-8": ("r.json", lambda content: b"\xff" + content, REPORT, ["r.json is not a result"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_bad_files(world, refused, figure, kind):
    name, spoil, arguments, parts = FILES[kind]
    whole = (world / name).read_bytes()
    (world / name).write_bytes(spoil(whole))
    try:
        check(refused(arguments), parts)
    finally:
        (world / name).write_bytes(whole)
    figure("bad inputs: files", 1)


# --- Python ---

POOL = [Candidate(Chunk(f"d{place}", text), 0.9 - place / 10) for place, text in enumerate(["A lake.", "A mill."])]


class Counts:
    """A token counter that returns what it is told to."""

    name, exact = "odd", True

    def __init__(self, counts):
        self.counts = counts

    def count(self, texts):
        return self.counts


def select(method="top-k", query="q?", candidates=POOL, budget=100, **settings):
    return corag.selector(method, **settings).select(query, candidates, budget)


PYTHON = {
    "a selector of a number": (lambda: corag.selector(3), ["3 is no selector", "top-k"]),
    "a selector of nothing": (lambda: corag.selector(None), ["None is no selector"]),
    "a selector of two names": (lambda: corag.selector({"a": {}, "b": {}}), ["has 2 names", "{name: {key: value}}"]),
    "a selector of a list": (lambda: corag.selector({"top-k": [3]}), ["the settings of 'top-k' are [3]", "{k: 3}"]),
    "a built selector with settings": (lambda: corag.selector(corag.selector("full"), k=3), ["is built already"]),
    "a setting twice": (lambda: corag.selector("top-k(k=3)", k=4), ["'k' is set twice; leave one out"]),
    "a taken name": (lambda: corag.SELECTORS.register("top-k", object), ["exists already", "another name"]),
    "a reader of a selector": (lambda: corag.reader(corag.selector("full")), ["no reader", "answer"]),
    "an embedder of a text in a list": (lambda: corag.embedder(["minilm"]), ["no embedder"]),
    "tokens of a number": (lambda: corag.tokens(3), ["3 is no tokenizer", "minilm"]),
    "an unknown kind": (lambda: Candidate(Chunk("a", "x"), 1.0, "bm25"), ["kind is 'bm25'", "cosine, score, rank"]),
    "a rank below 0": (lambda: Candidate(Chunk("a", "x"), rank=-1), ["rank must be a whole number of at least 0"]),
    "a chunk without a text": (lambda: Chunk("a", 3), ["Chunk.text is 3"]),
    "a budget of a text": (lambda: select(budget="100"), ["budget_tokens must be a whole number", "'100'"]),
    "a budget of infinity": (lambda: select(budget=float("inf")), ["budget_tokens must be", "inf"]),
    "texts of one text": (lambda: corag.select("q?", "a text"), ["texts is a str", "give a list"]),
    "texts of a mapping": (lambda: corag.select("q?", {"a": "b"}), ["texts is a dict", "give a list"]),
    "texts of numbers": (lambda: corag.select("q?", [1, 2]), ["texts[0] is a int", "give strings"]),
    "a mapping without a text": (lambda: corag.select("q?", [{"id": "a"}]), ["texts[0] has no 'text'", "id"]),
    "a similarity of a text": (
        lambda: corag.select("q?", [{"text": "x", "similarity": "high"}]), ["texts[0] has similarity 'high'"]
    ),
    "metadata of a list": (lambda: corag.select("q?", [{"text": "x", "metadata": [1]}]), ["texts[0]", "metadata"]),
    "a title of a list": (lambda: corag.select("q?", [{"text": "x", "kind": "best"}]), ["kind is 'best'", "cosine"]),
    "counts below 0": (lambda: select(tokens=lambda text: -1), ["returned -1", "at least 0"]),
    "counts of a text": (lambda: select(tokens=lambda text: "many"), ["returned 'many'", "whole number"]),
    "counts of a fraction": (lambda: select(tokens=lambda text: 1.5), ["returned 1.5"]),
    "another number of counts": (lambda: select(tokens=Counts(np.array([1]))), ["odd", "2 texts"]),
    "counts that are none": (lambda: select(tokens=Counts(None)), ["odd"]),
    "counts in a table": (lambda: select(tokens=Counts(np.ones((3, 2), dtype=np.int64))), ["odd"]),
    "counts of NaN": (lambda: select(tokens=Counts(np.full(3, np.nan))), ["odd"]),
    "negative counts": (lambda: select(tokens=Counts(np.array([1, -5, 1]))), ["odd"]),
    "a chunking of nothing": (lambda: corag.ChunkConfig(0), ["max_tokens must be at least 1, got 0"]),
    "an overlap of everything": (lambda: corag.ChunkConfig(8, 8), ["overlap_tokens", "below max_tokens=8"]),
    "an index nowhere": (lambda: corag.ask("q?", "nowhere"), ["there is no index at nowhere", "corag index"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PYTHON)
def test_bad_calls(figure, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    call, parts = PYTHON[kind]
    with pytest.raises(CoragError) as caught:
        call()
    assert "\n" not in str(caught.value)
    check(str(caught.value), parts)
    figure("bad inputs: calls", 1)
