"""What a user can get wrong at the command line: one clear error, status 2, and nothing that was there is changed."""

import json
import pickle
import re
from zlib import crc32

import numpy as np
import pytest
from safetensors.numpy import save_file

import corag
from corag.cli.main import MISTAKE, main
from corag.index import ChunkIndex
from corag.registry import EMBEDDERS
from corag.text.chunking import ChunkConfig, chunk_documents
from corag.text.documents import Document
from corag.writing import cache_folder
from tests.experiments.worlds import (
    DOCUMENTS,
    QUERIES,
    listing,
    save_small_agent,
    write_folder,
)
from tests.processes import run_command

QUESTION = "How deep is the lake?"


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """Return a function that runs a command and returns its one line of error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        before = listing(tmp_path)
        assert main([str(argument) for argument in arguments]) == MISTAKE
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = [line for line in captured.err.splitlines() if "━" not in line]
        assert len(lines) == 1 and lines[0].startswith("error: ")
        assert listing(tmp_path) == before
        return lines[0]

    return run


def all_in(text, *parts):
    missing = [part for part in parts if part not in text]
    assert not missing, f"{text!r} lacks {missing}"


# --- Questions, budgets and flags ---


@pytest.mark.parametrize("question", ["", " ", "\t\n"])
def test_an_empty_question(refused, small_index, question):
    said = refused("ask", question, "--index", small_index)
    all_in(said, "the question is empty", "give a question with at least one word")


def test_a_question_that_is_no_unicode(refused, small_index):
    all_in(refused("ask", "\udcff", "--index", small_index), "valid Unicode", "decode its source")


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0, -1, -256])
@pytest.mark.parametrize("command", ["ask", "evaluate", "label"])
def test_a_budget_below_one(refused, small_data, small_index, command, budget):
    rest = {
        "ask": [QUESTION, "--index", small_index],
        "evaluate": ["--data", small_data, "--out", "r.json"],
        "label": ["--data", small_data, "--out", "labels"],
    }[command]
    said = refused(command, *rest, "--budget", budget)
    all_in(said, "budget", "at least 1", f"got {budget}", "256 to 4096 are usual")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["command", "demo", "ask"]),
        (["answer"], ["invalid choice: 'answer'", "'ask'"]),
        (["ask"], ["required: ask.question"]),
        (["ask", "x", "--budget", "many"], ['"budget"', "int", "many"]),
        (["ask", "x", "--bugdet", "1"], ["unrecognized arguments: --bugdet 1"]),
        (["evaluate", "--data", "d", "--pool", "both"], ['"pool"', "'candidates', 'document', 'corpus'", "both"]),
        (["evaluate", "--config", "nowhere.yaml"], ["nowhere.yaml", "does not exist"]),
        (["label", "--data", "d"], ["required: label.out"]),
        (["train", "--labels", "l", "--out", "o", "--training.lr", "fast"], ['"training.lr"', "float", "fast"]),
    ],
)
def test_flags_that_cannot_be(refused, arguments, parts):
    all_in(refused(*arguments), *parts, "see corag --help, or corag COMMAND --help")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "--labels", "l", "--out", "o", "--training.epochs", "0"], ["epochs", "at least 1", "got 0"]),
        (["train", "--labels", "l", "--out", "o"], ["l does not exist", "corag label"]),
        (["bench", "search", "--rounds", "0"], ["rounds must be at least 1, got 0"]),
        (["report", "--results", "r.json"], ["r.json", "corag evaluate"]),
        (["demo", "--budgets", "a"], ["budgets is 'a'", "128,256,512"]),
        (["index", "--data", "nowhere"], ["nowhere is not a folder", "corpus.jsonl"]),
        (["ask", "x", "--index", "nowhere"], ["there is no index at nowhere", "corag index"]),
    ],
)
def test_settings_that_cannot_be(refused, arguments, parts):
    all_in(refused(*arguments), *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--method", "best"], ["selector 'best' is unknown", "top-k", "corag-fixed"]),
        (["--method", "corag-fixed", "--agent", "none"], ["agent is 'none'", "takes its setting from a checkpoint"]),
        (["--method", "naive", "--strict"], ["selector 'naive'", "strict"]),
        (["--method", "naive", "--agent", "a"], ["'naive' does not use an agent", "leave out --agent"]),
        (["--method", "top-k", "--reranker", "bm25"], ["'top-k'", "reranker"]),
        (["--reranker", "best"], ["reranker 'best' is unknown", "bm25"]),
        (["--reader", "best"], ["reader 'best' is unknown", "extractive"]),
        (["--reader", "minilm-reader(model=llama)"], ["reader 'minilm-reader'", "model"]),
        (["--tokenizer", "none.json"], ["none.json", "tokenizer.json"]),
        (["--num_candidates", "0"], ["at least 1, got 0"]),
        (["--agent", "nowhere"], ["nowhere is not a checkpoint folder"]),
    ],
)
def test_parts_that_do_not_exist_or_fit(refused, small_index, arguments, parts):
    all_in(refused("ask", QUESTION, "--index", small_index, *arguments), *parts)


# --- Data ---


@pytest.mark.slow
@pytest.mark.parametrize("command", ["index", "evaluate", "label"])
@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("", ["corpus.jsonl is empty", "at least one line"]),
        ("\n \n", ["corpus.jsonl is empty"]),
        ('{"id": "a", "text": "x"}\n{"id": "b", "te\n', ["corpus.jsonl, line 2", "not JSON", "one JSON object"]),
        ('{"id": "a", "text": "x"}\n[]\n', ["corpus.jsonl, line 2", "a JSON list"]),
        ('{"id": "a"}\n', ["corpus.jsonl, line 1", "field 'text' is missing"]),
        ('{"id": "a", "text": 3}\n', ["corpus.jsonl, line 1", "holds 3", "a string"]),
        ('{"id": "", "text": "x"}\n', ["corpus.jsonl, line 1", "'id' is empty"]),
        (
            '{"id": "a", "text": "x"}\n\n{"id": "a", "text": "y"}\n',
            ["line 3: id 'a' is already used in line 1", "unique"],
        ),
        ('{"id": "a", "text": "\\ud800"}\n', ["corpus.jsonl, line 1", "surrogate", "valid Unicode"]),
    ],
)
def test_a_broken_corpus(refused, tmp_path, command, lines, parts):
    write_folder(tmp_path / "data")
    (tmp_path / "data" / "corpus.jsonl").write_text(lines)
    all_in(refused(command, "--data", "data", "--out", "out.json"), *parts)


def test_a_corpus_that_is_not_utf8(refused, tmp_path):
    write_folder(tmp_path / "data")
    (tmp_path / "data" / "corpus.jsonl").write_bytes('{"id": "a", "text": "é"}\n'.encode("latin-1"))
    said = refused("index", "--data", "data", "--out", "index")
    all_in(said, "corpus.jsonl, line 1: not UTF-8", "save the file as UTF-8")


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ({"question": " "}, ["queries.jsonl, line 2: field 'question' is empty"]),
        ({"id": "q1"}, ["queries.jsonl, line 2: id 'q1' is already used in line 1"]),
        ({"answers": "310 metres"}, ["queries.jsonl, line 2: field 'answers' is '310 metres'", "a list of strings"]),
        (
            {"candidates": ["nowhere"]},
            ["question 'q2': candidate 'nowhere' is not in the corpus", "remove it from the question"],
        ),
    ],
)
def test_a_broken_question(refused, tmp_path, query, parts):
    write_folder(tmp_path / "data", DOCUMENTS, [QUERIES[0], QUERIES[1] | query])
    all_in(refused("evaluate", "--data", "data", "--out", "r.json"), *parts)


def test_no_candidates(refused, tmp_path):
    write_folder(tmp_path / "data", DOCUMENTS, [row | {"candidates": []} for row in QUERIES])
    said = refused("evaluate", "--data", "data", "--out", "r.json")
    all_in(said, "none of the 4 questions of data has a candidate", "--pool corpus")
    write_folder(tmp_path / "data", DOCUMENTS, [row | {"candidates": None} for row in QUERIES])
    said = refused("label", "--data", "data", "--out", "labels", "--pool", "candidates")
    all_in(said, "question 'q1' of data has no candidates of its own", "--pool corpus")


def test_a_split_that_is_not_there(refused, small_data):
    all_in(refused("evaluate", "--data", small_data, "--split", "val", "--out", "r"), "'val'", "train (5)", "test (3)")


def test_a_title_that_fills_the_chunk(refused, small_data):
    said = refused("index", "--data", small_data, "--max_tokens", 2, "--out", "index")
    all_in(said, "document 'varn'", "leaves no room for text within max_tokens=2", "raise max_tokens")


@pytest.mark.slow
def test_an_output_that_is_a_folder(refused, tmp_path, small_data):
    (tmp_path / "folder").mkdir()
    for command in ("evaluate", "label"):
        all_in(refused(command, "--data", small_data, "--out", "folder"), "out is 'folder'", "runs/result.json")


def test_an_output_below_a_file(refused, tmp_path, small_data):
    (tmp_path / "file").write_text("old")
    said = refused("label", "--data", small_data, "--out", "file/labels", "--rerankers", "bm25", "--quiet")
    all_in(said, "file", "check the path")


# --- Checkpoints ---


@pytest.fixture
def with_checkpoint(refused, small_index, tmp_path):
    """Return a function that asks with a checkpoint that was tampered with."""
    save_small_agent(tmp_path / "agent")

    def ask():
        return refused("ask", QUESTION, "--index", small_index, "--agent", "agent")

    return ask


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_checkpoint_that_lacks_a_file(with_checkpoint, tmp_path, name):
    (tmp_path / "agent" / name).unlink()
    all_in(with_checkpoint(), f"agent lacks {name}", "copy the whole checkpoint folder or train again")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 40, b"null"])
def test_a_checkpoint_with_a_broken_file(with_checkpoint, tmp_path, name, content):
    (tmp_path / "agent" / name).write_bytes(content)
    all_in(with_checkpoint(), name, "train again")


class Dangerous:
    """Shows when it is unpickled."""

    def __reduce__(self):
        return (open, ("was-unpickled", "w"))


def test_a_checkpoint_that_is_a_pickle(with_checkpoint, tmp_path):
    pickled = pickle.dumps({"encoder.0.weight": Dangerous()})
    (tmp_path / "agent" / "model.safetensors").write_bytes(pickled)
    all_in(with_checkpoint(), "model.safetensors is damaged")
    (tmp_path / "agent" / "model.safetensors").rename(tmp_path / "agent" / "model.pt")
    all_in(with_checkpoint(), "model.pt may be a pickle, which can run code when read")
    assert not (tmp_path / "was-unpickled").exists()


def test_a_checkpoint_with_other_weights(with_checkpoint, tmp_path):
    save_file({"encoder.0.weight": np.zeros((4, 1024), dtype=np.float32)}, tmp_path / "agent" / "model.safetensors")
    all_in(with_checkpoint(), "model.safetensors does not fit config.json", "copy both from one training")


def test_a_checkpoint_for_vectors_of_another_length(with_checkpoint, tmp_path):
    save_small_agent(tmp_path / "agent", feature_dim=1024)
    all_in(with_checkpoint(), "1024", "384")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ask", "evaluate"])
def test_a_checkpoint_with_an_unknown_reranker(refused, tmp_path, small_data, small_index, command):
    save_small_agent(tmp_path / "agent", rerankers=("bm25", "my-own"))
    rest = [QUESTION, "--index", small_index] if command == "ask" else ["--data", small_data, "--methods", "corag"]
    said = refused(command, *rest, "--agent", "agent", "--strict")
    all_in(said, "reranker 'my-own', which is unknown here", "minilm-maxsim")
    save_small_agent(tmp_path / "agent", rerankers=("his-own", "my-own"))
    all_in(refused(command, *rest, "--agent", "agent"), "reranker 'his-own', which is unknown here", "minilm-maxsim")


def test_a_checkpoint_without_a_best_single_setting(refused, tmp_path, small_index):
    save_small_agent(tmp_path / "agent")
    said = refused("ask", QUESTION, "--index", small_index, "--method", "corag-fixed", "--agent", "agent")
    all_in(said, "agent records no best single setting", "corag train")


# --- Indexes ---


class OtherEmbedder:
    """Another model; of each text it takes the length."""

    name, dimension = "other", 4

    def embed(self, texts):
        vectors = np.array([[1, len(text), 0, 0] for text in texts], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class BrokenEmbedder(OtherEmbedder):
    """Stops in the middle of the corpus."""

    name, dimension = "minilm", 384
    num_texts = 0

    def embed(self, texts):
        self.num_texts += len(texts)
        if self.num_texts > 8:
            raise RuntimeError("power failure")
        return corag.embedder().embed(texts)


def chunks_of_the_corpus():
    documents = [Document(row["id"], row["text"], row["title"]) for row in DOCUMENTS]
    return list(chunk_documents(documents, corag.tokens(), ChunkConfig(24)))


def test_an_index_of_another_embedder(refused, monkeypatch, small_data, small_index):
    monkeypatch.setitem(EMBEDDERS.parts, "other", OtherEmbedder)
    parts = ("was made by embedder 'minilm' (384 dimensions), not by 'other' (4 dimensions)", "use that embedder")
    all_in(refused("ask", QUESTION, "--index", small_index, "--embedder", "other"), *parts)
    evaluate = ["evaluate", "--data", small_data, "--pool", "corpus", "--out", "r.json", "--quiet"]
    all_in(refused(*evaluate, "--index", small_index, "--embedder", "other"), *parts)


def test_a_half_written_index(refused, tmp_path):
    with pytest.raises(RuntimeError):
        ChunkIndex.build(tmp_path / "index", chunks_of_the_corpus(), BrokenEmbedder(), batch_size=4)
    said = refused("ask", QUESTION, "--index", "index")
    all_in(said, "index is half-written", "run the same `corag index` command again")


def test_a_place_where_another_index_is(refused, tmp_path, small_data):
    ChunkIndex.build(tmp_path / "index", chunks_of_the_corpus()[:2], corag.embedder())
    said = refused("index", "--data", small_data, "--out", "index", "--quiet")
    all_in(said, "index", "another corpus or was made with other settings", "overwrite")


def test_a_folder_that_is_no_index(refused, small_data):
    all_in(refused("ask", QUESTION, "--index", small_data), "there is no index at")


# --- What looks odd and is right ---


def succeeds(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_every_chunk_over_the_budget_is_an_empty_selection_with_a_reason(small_index, capsys):
    for unit, number in (("passage", "20"), ("sentence", r"\d+")):
        given = ("--index", small_index, "--budget", 2, "--unit", unit, "--json")
        said = json.loads(succeeds(capsys, "ask", QUESTION, *given))
        assert (said["answer"], said["chunks"], said["cost_tokens"], said["value"]) == ("", [], 0, 0)
        expected = f"every one of the {number} candidates costs more than the budget of 2 tokens"
        assert re.search(expected, said["trace"]["reason"])


ODD_TEXTS = {
    "nul": "before\x00after the lake",
    "emoji": "👩‍👩‍👧 at the lake 🌊🌊, 310 metres deep 😀.",
    "hebrew": "עומק האגם הוא 310 מטרים. הוא מלוח.",
    "arabic": "عمق البحيرة 310 أمتار؟ نعم، وهي مالحة.",
    "mixed": "The lake (אגם) is \u202e310\u202c metres deep.",
    "combining": "Le lac e\u0301tait profond; l\u2019eau\u00a0est sale\u0301e.",
    "empty": "",
    "breaks": "one\r\ntwo\u2028three\x0bfour\x85five",
}


@pytest.mark.slow
def test_any_text_goes_from_corpus_to_answer(tmp_path, capsys):
    documents = [{"id": f"{name} é#1", "title": name, "text": text} for name, text in ODD_TEXTS.items()]
    names = [row["id"] for row in documents]
    queries = [
        {
            "id": f"{name} {split}",
            "question": text or "?",
            "answers": [text],
            "gold": [f"{name} é#1"],
            "candidates": names,
            "split": split,
        }
        for split in ("train", "dev")
        for name, text in ODD_TEXTS.items()
    ]
    data = write_folder(tmp_path / "data", documents, queries)
    index = tmp_path / "index"
    succeeds(capsys, "index", "--data", data, "--out", index, "--quiet")
    assert {chunk.text for chunk in ChunkIndex.open(index).chunks()} == {
        f"{name}\n{text}" for name, text in ODD_TEXTS.items() if text
    }
    for question in [text for text in ODD_TEXTS.values() if text] + ["\x00", "🌊", "؟"]:
        ask = ["ask", question, "--index", index, "--num_candidates", 4]
        said = json.loads(succeeds(capsys, *ask, "--json"))
        assert said["question"] == question and said["chunks"]
        succeeds(capsys, *ask)
    out, labels = tmp_path / "r.json", tmp_path / "labels"
    succeeds(capsys, "evaluate", "--data", data, "--out", out, "--methods", "naive,corag", "--quiet")
    assert all(row["over_budget"] == 0 for row in json.loads(out.read_text())["methods"])
    succeeds(
        capsys, "label", "--data", data, "--out", labels, "--rerankers", "minilm-maxsim", "--iterations", "2", "--quiet"
    )


class WordEmbedder:
    """Counts of words under 256 hashes: finds rare words, and is quick."""

    name, dimension = "words", 256

    def embed(self, texts):
        vectors = np.full((len(texts), 256), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in set(text.lower().strip("?.").split()):
                vectors[row, crc32(word.encode()) % 256] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
def test_a_document_of_a_hundred_thousand_tokens(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EMBEDDERS.parts, "words", WordEmbedder)
    sentences = ["Every item of the long list is made of wood and paint."] * 9_000
    sentences[7_000] = "The blue cobalt lamp hangs on the northern gate."
    document = {"id": "long", "title": "", "text": " ".join(sentences)}
    assert corag.tokens().count([document["text"]])[0] > 100_000
    data = write_folder(tmp_path / "data", [document], [QUERIES[0] | {"candidates": ["long"], "gold": ["long"]}])
    index = tmp_path / "index"
    succeeds(capsys, "index", "--data", data, "--out", index, "--embedder", "words", "--quiet")
    assert "".join(chunk.text for chunk in ChunkIndex.open(index).chunks()) == document["text"]
    arguments = ["--index", index, "--budget", 600, "--num_candidates", 5, "--json"]
    said = json.loads(succeeds(capsys, "ask", "Where hangs the blue cobalt lamp?", *arguments))
    assert "northern gate" in said["answer"] and said["cost_tokens"] <= 600
    # As one candidate it does not fit, and is no reason to fail.
    evaluate = ["evaluate", "--data", data, "--split", "train", "--out", tmp_path / "r.json", "--quiet"]
    succeeds(capsys, *evaluate, "--methods", "naive,corag(unit=passage),upper")
    assert all(row["empty"] == 1 for row in json.loads((tmp_path / "r.json").read_text())["methods"])


# --- A full disk ---


@pytest.fixture(scope="module")
def warm():
    """The converted model stands in the cache, so that a limited process need not write it."""
    corag.embedder().embed(["text"])
    assert any(cache_folder().iterdir())


QUICK_LABELS = ["--rerankers", "bm25,minilm-maxsim", "--iterations", "2", "--cost_weights", "0"]
COMMANDS = {
    "index": (600, "index", ["--max_tokens", "24"]),
    "label": (4096, "labels.parquet", QUICK_LABELS),
    "evaluate": (3000, "r.json", ["--methods", "naive,corag", "--budget", "96"]),
}
"""Command: the most bytes of a file, what it writes, and its settings."""


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_error_and_the_work_goes_on_after_it(tmp_path, small_data, warm, command):
    limit_bytes, out, settings = COMMANDS[command]
    before = listing(small_data)
    arguments = [command, "--data", small_data, "--out", tmp_path / out, *settings, "--quiet"]
    done = run_command(*arguments, limit_bytes=limit_bytes, TMPDIR=str(tmp_path))
    assert done.returncode == MISTAKE, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "too large" in lines[0]
    all_in(lines[0], str(tmp_path), "cannot", "free s")
    assert listing(small_data) == before
    assert command == "index" or not (tmp_path / out).exists()
    done = run_command(*arguments)
    assert (done.returncode, "error:" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / out).exists() and not list(tmp_path.glob("*journal*"))
