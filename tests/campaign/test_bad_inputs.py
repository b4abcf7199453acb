"""One table of what users get wrong: each ends in one line of error, and changes no file.

Arguments of commands, and parts by name, are in `bad_inputs.txt`; files that hold something else than they should, and
Python calls, below. What an error says is tested where it helps: it names the file and the line.
"""

import json
import math
import shlex
import shutil
from collections import UserDict
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

import corag
from common.storage import seal_again
from corag import Candidate, Chunk
from corag.cli.main import MISTAKE, main
from corag.errors import CoragError
from corag.index import ChunkIndex
from corag.text.units import unit_size
from corag.types import Answer
from experiments.labels.table import VECTORS
from tests.corag.integrations.worlds import Note, Notes
from tests.experiments.worlds import MANY_QUERIES, listing, write_folder
from tests.fakes import FakeReader, HashEmbedder

pytestmark = pytest.mark.slow

DOORS = ("selector", "reranker", "reader", "tokens")
ROWS = Path(__file__).with_name("bad_inputs.txt").read_text(encoding="utf-8").splitlines()
ROWS = [row for row in ROWS if row and not row.startswith("#")]


@pytest.fixture(scope="module")
def mistakes(world):
    """What commands read that is right, and some files that are not."""
    write_folder(world / "many", queries=MANY_QUERIES)
    (world / "r.json").write_text("{}")
    (world / "notes.md").write_text("# Mine\n\nSome words.\n")
    (world / "empty.txt").touch()
    (world / "folder").mkdir()
    shutil.copytree(Path(__file__).with_name("yaml"), world, dirs_exist_ok=True)
    (world / "deep.yaml").write_text(f"data: {'[' * 3000}{']' * 3000}\n")
    (world / "long.yaml").write_text(f"budget: {'1' * 5000}\n")
    return world


@pytest.fixture
def refused(mistakes, capsys, monkeypatch):
    """Return a function that runs a command, which changes nothing, and returns its one line of error."""
    monkeypatch.chdir(mistakes)

    def run(arguments):
        before = listing(mistakes)
        assert main(shlex.split(arguments)) == MISTAKE
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if not ("━" in line or ":00:" in line)]
        assert captured.out == "" and len(lines) == 1 and lines[0].startswith("error: ")
        assert "PLANTED" not in captured.err  # a key that is refused
        assert listing(mistakes) == before
        return lines[0]

    return run


@pytest.mark.parametrize("row", ROWS)
def test_bad_arguments_and_parts(refused, row):
    door, _, part = row.partition(" ")
    if door in DOORS:
        with pytest.raises(CoragError) as caught:
            getattr(corag, door)(part)
        assert "\n" not in str(caught.value)
    else:
        refused(row)


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


def half(content):
    return content[: len(content) // 2]


def nothing(content):
    return b""


def in_table(changed):
    """A Parquet file holds what a function of its table returns."""

    def in_file(content):
        table = changed(pq.read_table(pa.BufferReader(content)))
        pq.write_table(table, sink := pa.BufferOutputStream())
        return sink.getvalue().to_pybytes()

    return in_file


def in_rows(name, changed):
    """A column of a Parquet file holds, where it holds something, what a function of that returns."""

    def in_column(table):
        values = [None if value is None else changed(value) for value in table[name].to_pylist()]
        at, field = table.schema.get_field_index(name), table.schema.field(name)
        return table.set_column(at, field, pa.array(values, field.type, from_pandas=False))

    return in_table(in_column)


def ragged(name):
    """Every other vector of a column lacks its last number."""
    ends = cycle((None, -1))
    return in_rows(name, lambda vector: vector[: next(ends)])


CORPUS = ("data/corpus.jsonl", "index --data data --out new --quiet", "corpus.jsonl")
QUERIES = (
    "data/queries.jsonl",
    "evaluate --data data --split train --methods top-k --reader none --out o.json --quiet",
    "queries.jsonl",
)
CONFIG = ("agent/config.json", "ask x --index index --agent agent", "")
WEIGHTS = ("agent/model.safetensors", "ask x --index index --agent agent", "model.safetensors")
LABELS = ("labels.parquet", "train --labels labels.parquet --out new --logger none --quiet", "labels.parquet")
FILES = {
    CORPUS: [
        *(line("3"), line("{"), line("[" * 10**5), having(id=None), having(title=["Varn"]), nothing),
        lambda content: content.replace(b"Varn", b"\xff", 1),
        *(lambda content: content.decode().encode("utf-16"), lambda content: 2 * content),
    ],
    QUERIES: [
        *(
            nothing,
            line("[]"),
            having(question=["x"]),
            having(answers=310),
            having(gold="varn"),
            having(id="q2"),
            having(split=1),
            having(candidates="a"),
            having(candidates=["varn", "nowhere"]),
            having(grades={"a": 1.5}),
        ),
        *(lambda content: content[:-20], having(question="\ud800?")),
    ],
    CONFIG: [
        *(lambda content: b"{}", lambda content: b"[" * 10**5, lambda content: b"\xff\xfe", nothing),
        *(having(format_version=99), having(color="red"), having(features=["color"]), having(hidden=[10**9])),
        *(having(embedder=3), having(feature_dim=1024), having(priors={}), having(fallback_settings=[10, 2.4])),
        *(having(configurations=wrong) for wrong in (3, [3], [{}], ["corag("], [""], [], ["top-k"] * 2)),
    ],
    WEIGHTS: [
        *(nothing, half, lambda content: b"\xff" * 8 + content[8:], lambda content: content[:8] + b"x" * 40),
        lambda content: content[:-400] + np.full(100, np.nan, "<f4").tobytes(),
        lambda content: save({"x": np.zeros(2)}),
    ],
    LABELS: [
        *(nothing, half, lambda content: content[:-9] + b"x" * 9),
        *(in_table(lambda table, name=name: table.drop_columns([name])) for name in ("configuration", "cost_tokens")),
        *(in_rows(name, lambda _: None) for name in ("cost_tokens", *VECTORS)),
        *(in_rows(name, lambda vector: [None, *vector[1:]]) for name in VECTORS),
        *(in_rows(name, lambda vector: [np.float16("inf"), *map(np.float16, vector[1:])]) for name in VECTORS[:2]),
        *(ragged(name) for name in ("query_vector", "candidates_vector")),
    ],
}


def put(file, content):
    """Write a file; one of an agent is sealed, or the seal would be all that is tested."""
    file.write_bytes(content)
    if file.parent.name == "agent":
        with suppress(ValueError, RecursionError):
            seal_again(file.parent)


@pytest.mark.parametrize(
    ("file", "spoil"),
    [(file, spoil) for file, spoils in FILES.items() for spoil in spoils],
    ids=[f"{file[0]}-{number}" for file, spoils in FILES.items() for number, _ in enumerate(spoils)],
)
def test_bad_files(world, refused, file, spoil):
    name, arguments, named = file
    whole = (world / name).read_bytes()
    try:
        put(world / name, spoil(whole))
        assert named in refused(arguments)
    finally:
        put(world / name, whole)


POOL = [Candidate(Chunk(f"d{place}", text), 0.9 - place / 10) for place, text in enumerate(["A lake.", "A mill."])]


class Counts:
    """A token counter that returns what it is given."""

    name, exact = "odd", True

    def __init__(self, counts):
        self.counts = counts

    def count(self, texts):
        return self.counts


def answered(answer):
    return corag.ask("q?", ["The lake is deep."], method="full", reader=FakeReader(answer))


def select(method="top-k", query="q?", candidates=POOL, budget=100, **settings):
    return corag.selector(method, **settings).select(query, candidates, budget)


CALLS = [
    *(lambda part=part: corag.selector(part) for part in (3, None, {"top-k": {}}, corag.selectors.TopK)),
    *(lambda: corag.selector(corag.selector("full"), k=3), lambda: corag.selector("top-k(k=3)", k=4)),
    *(lambda: corag.SELECTORS.register("top-k", object), lambda: corag.reader(corag.selector("full"))),
    *(lambda: corag.embedder(["minilm"]), lambda: corag.tokens(3), lambda: Chunk("a", 3), lambda: corag.ChunkConfig(0)),
    *(lambda: Candidate("a text", 0.5), lambda: Candidate(Chunk("a", "x"), 1.0, "bm25")),
    lambda: Candidate(Chunk("a", "x"), rank=-1),
    *(lambda budget=budget: select(budget=budget) for budget in ("100", 0, -1, 2.5, True, None, math.nan, 10**12 + 1)),
    *(lambda query=query: select(query=query) for query in ("", " \n", None, 7, b"a?", ["a?"], "a\ud83d?")),
    *(
        lambda candidates=candidates: select(candidates=candidates)
        for candidates in (
            *([3], "a text", b"a text", None, 3, [{"body": "a"}], [None], [("text", "score")]),
            *([{"text": "a", "similarity": unfit}] for unfit in (math.nan, -math.inf, "0.5", [1], 1j)),
            *([POOL[0], other] for other in (Candidate(Chunk("d0", "b"), 0.9), Candidate(Chunk("b", "b")))),
            [POOL[0], Candidate(Chunk("b", "b"), 7, "score")],
        )
    ),
    *(lambda cosine=cosine: Candidate(Chunk("b", "b"), cosine) for cosine in (5, -1.01, math.inf, 10**400, "high")),
    *(lambda texts=texts: corag.select("q?", texts) for texts in ("a text", {"a": "b"}, [1, 2], [{"id": "a"}])),
    *(
        lambda extra=extra: corag.select("q?", [{"text": "x", **extra}])
        for extra in ({"similarity": "high"}, {"metadata": [1]}, {"kind": "best"})
    ),
    *(
        lambda count=count: select(tokenizer=lambda text: count)
        for count in (-1, "many", True, 2.0, UserDict(input_ids=[1]))
    ),
    *(
        lambda counts=counts: select(tokenizer=Counts(counts))
        for counts in (None, [10**30], np.array([1]), np.full(3, np.nan))
    ),
    *(
        lambda: corag.ChunkConfig(8, 8),
        lambda: corag.ask("q?", "nowhere"),
        lambda: corag.ChunkConfig(8, -1),
        lambda: corag.ChunkConfig("5"),
        lambda: corag.ChunkConfig(10**22),
    ),
    *(lambda: Chunk("a", "One. Two.", None), lambda: Chunk("a", "a\ud83d")),
    *(lambda: corag.select("q", [{"text": "a", "similarity": 10**400}], method="top-k"), lambda: unit_size(None)),
    *(lambda: unit_size(f"window({10**20})"), lambda: corag.ask("q?", ["a text"], num_candidates=10**9)),
    lambda: answered(None),
    *(lambda: Answer("a", float("nan")),),
    *(lambda: ChunkIndex.build("index", ["a"], HashEmbedder()), lambda: corag.runtime(gpu=1).__enter__()),
    *(lambda: corag.runtime("cpu").__enter__(), lambda: corag.runtime(trust_remote_code="no").__enter__()),
    *(lambda name=name: corag.reranker(name).score("q?", [None]) for name in ("bm25", "minilm-cosine")),
    *(lambda: corag.reranker("minilm-late").score(None, ["a text"]), lambda: corag.embedder("minilm", encoder=5)),
    lambda: corag.embedder("minilm(encoder=e5)"),
    *(lambda budget=budget: Notes(method="top-k").choose("q?", [Note("a text")], budget) for budget in (0, -1, "60")),
]


@pytest.mark.parametrize("call", CALLS)
def test_bad_calls(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CoragError) as caught:
        call()
    assert "\n" not in str(caught.value)
