import gzip
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError, InputError
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import DataFolder, is_evidence, read_corpus
from corag.text.documents import Document, passage
from corag.text.tokens import CallableCounter
from corag.types import Chunk
from tests.paths import DATA

CORPUS = [{"id": "a", "title": "A", "text": "Text of a."}, {"id": "b", "title": "", "text": "Text of b."}]
QUERY = {"id": "q1", "question": "What?", "answers": ["this"], "gold": ["a"], "split": "test"}


def write(folder: Path, corpus=CORPUS, queries=(QUERY,), *, gz: bool = False) -> Path:
    """Write a data folder; rows are objects, or lines as bytes."""
    for stem, rows in (("corpus", corpus), ("queries", queries)):
        lines = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
        if gz:
            (folder / f"{stem}.jsonl.gz").write_bytes(gzip.compress(lines))
        else:
            (folder / f"{stem}.jsonl").write_bytes(lines)
    return folder


# --- What is read ---


@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
def test_a_folder_is_read(tmp_path, gz):
    queries = [QUERY, {"id": "q2", "question": "Who?", "candidates": ["b", "a", "b"], "level": "hard", "hops": [1]}]
    folder = DataFolder.open(write(tmp_path, queries=queries, gz=gz))
    assert folder.path == tmp_path
    assert list(folder.documents.values()) == [Document("a", "Text of a.", "A"), Document("b", "Text of b.")]
    first, second = folder.queries
    assert (first.id, first.question, first.answers, first.gold, first.split) == (
        "q1", "What?", ("this",), ("a",), "test",
    )  # fmt: skip
    assert (first.candidates, first.extra) == (None, {})
    assert (second.answers, second.gold, second.split) == ((), (), "all")
    assert (second.candidates, second.extra) == (("b", "a"), {"level": "hard", "hops": [1]})
    assert read_corpus(str(tmp_path)) == folder.documents


def test_blank_lines_a_byte_order_mark_and_nulls_are_passed_over(tmp_path):
    corpus = [b"\xef\xbb\xbf" + json.dumps(CORPUS[0]).encode(), b"", b"  \t", {"id": "c", "title": None, "text": ""}]
    query = QUERY | {"answers": None, "gold": None, "candidates": None, "split": None}
    folder = DataFolder.open(write(tmp_path, corpus, [query]))
    assert list(folder.documents) == ["a", "c"]
    assert folder.documents["c"] == Document("c", "", "")
    assert (folder.queries[0].gold, folder.queries[0].candidates, folder.queries[0].split) == ((), None, "all")


def test_ids_may_be_numbers(tmp_path):
    corpus = [{"id": 1, "text": "one"}, {"id": 22, "text": "two"}]
    query = {"id": 0, "question": "What?", "gold": [22], "candidates": [1, 22]}
    (read,) = DataFolder.open(write(tmp_path, corpus, [query])).queries
    assert (read.id, read.gold, read.candidates) == ("0", ("22",), ("1", "22"))


@given(st.lists(st.tuples(st.text(min_size=1), st.text(), st.text()), min_size=1, unique_by=lambda row: row[0]))
def test_any_text_survives(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("data")
    write(folder, [dict(zip(("id", "title", "text"), row, strict=True)) for row in rows])
    assert [(doc.id, doc.title, doc.text) for doc in read_corpus(folder).values()] == rows


def test_splits(tmp_path):
    queries = [QUERY | {"id": str(i), "split": "dev" if i % 3 else "test"} for i in range(6)]
    folder = DataFolder.open(write(tmp_path, queries=queries))
    assert [query.id for query in folder.split("dev")] == ["1", "2", "4", "5"]
    assert [query.id for query in folder.split("dev", limit=3)] == ["1", "2", "4"]
    assert len(folder.split("test", limit=99)) == 2
    with pytest.raises(DataError, match=r"no question of split 'train'; its splits are test \(2\), dev \(4\)"):
        folder.split("train")


# --- Evidence that is not in the corpus ---


def test_lost_evidence_is_kept_and_reported_once(tmp_path, caplog):
    gold = [["a"], ["gone"], ["a#0-4"], ["a#0-10"], ["a#5-11"], ["a#4-4"], ["a", "b#9-3"], ["gone#0-1"]]
    queries = [QUERY | {"id": f"q{i}", "gold": names} for i, names in enumerate(gold)]
    with caplog.at_level(logging.WARNING, logger="corag"):
        folder = DataFolder.open(write(tmp_path, queries=queries))
    assert [list(query.gold) for query in folder.queries] == gold
    (record,) = caplog.records
    assert "the evidence of 5 questions is not in the corpus (first: q1)" in record.message


def test_whole_evidence_is_no_warning(tmp_path, caplog):
    DataFolder.open(write(tmp_path))
    assert caplog.records == []


# --- What is refused ---


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"id": "x", "text": "y"} trailing', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'["a"]', "a JSON list; every line must be one JSON object"),
        (b"null", "a JSON NoneType; every line must be one JSON object"),
        (b'{"id": "x", "text": "\xff"}', r"not UTF-8 \(.*save the file as UTF-8"),
        (b"{}", r"field 'id' is missing; the fields here are \(none\)"),
        (b'{"id": "x", "body": "y"}', "field 'text' is missing; the fields here are id, body"),
        (b'{"id": null, "text": "y"}', "field 'id' is missing"),
        (b'{"id": "", "text": "y"}', "field 'id' is empty"),
        (b'{"id": true, "text": "y"}', "field 'id' holds True; it must be a string"),
        (b'{"id": 1.5, "text": "y"}', "field 'id' holds 1.5; it must be a string"),
        (b'{"id": "x", "text": 7}', "field 'text' holds 7; it must be a string"),
        (b'{"id": "x", "text": ["y"]}', "field 'text' holds .*; it must be a string"),
        (b'{"id": "x", "text": "y", "title": 3}', "field 'title' holds 3; it must be a string"),
        (b'{"id": "x", "text": "ab\\ud83d"}', "field 'text' holds a lone surrogate at character 2"),
    ],
)
def test_a_broken_corpus_line_is_named(tmp_path, line, reason):
    write(tmp_path, [CORPUS[0], b"", line])
    with pytest.raises(DataError, match=rf"corpus\.jsonl, line 3: {reason}"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": None}, "field 'question' is missing"),
        ({"question": " \n"}, "field 'question' is empty"),
        ({"id": ""}, "field 'id' is empty"),
        ({"answers": "this"}, "field 'answers' is 'this'; it must be a list of strings"),
        ({"answers": [1]}, "field 'answers' holds 1; it must be a list of strings"),
        ({"answers": ["\ud83d"]}, "field 'answers' holds a lone surrogate at character 0"),
        ({"gold": {"a": 1}}, "field 'gold' is .*; it must be a list of strings"),
        ({"gold": [None]}, "field 'gold' holds None; it must be a list of strings"),
        ({"candidates": "a"}, "field 'candidates' is 'a'; it must be a list of strings"),
        ({"split": 1}, "field 'split' holds 1; it must be a string"),
    ],
    ids=str,
)
def test_a_broken_question_is_named(tmp_path, change, reason):
    write(tmp_path, queries=[QUERY, QUERY | {"id": "q2"} | change])
    with pytest.raises(DataError, match=rf"queries\.jsonl, line 2: {reason}"):
        DataFolder.open(tmp_path)


def test_repeated_ids_are_refused_with_both_lines(tmp_path):
    write(tmp_path, [*CORPUS, b"", CORPUS[0]])
    with pytest.raises(DataError, match="line 4: id 'a' is already used in line 1"):
        read_corpus(tmp_path)
    write(tmp_path, queries=[QUERY, QUERY])
    with pytest.raises(DataError, match=r"queries\.jsonl, line 2: id 'q1' is already used in line 1"):
        DataFolder.open(tmp_path)


def test_candidates_have_to_be_in_the_corpus(tmp_path):
    write(tmp_path, queries=[QUERY | {"candidates": ["a", "c"]}])
    with pytest.raises(DataError, match="question 'q1': candidate 'c' is not in the corpus; add the passage"):
        DataFolder.open(tmp_path)


@pytest.mark.parametrize("rows", [[], [b"", b"  "]], ids=["no line", "blank lines"])
@pytest.mark.parametrize("gz", [False, True], ids=["plain", "gz"])
def test_empty_files_are_refused(tmp_path, rows, gz):
    write(tmp_path, queries=rows, gz=gz)
    with pytest.raises(DataError, match=r"queries\.jsonl.* is empty; it needs at least one line"):
        DataFolder.open(tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"has neither corpus\.jsonl nor corpus\.jsonl\.gz"):
        DataFolder.open(tmp_path)
    write(tmp_path)
    (tmp_path / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"has neither queries\.jsonl nor queries\.jsonl\.gz"):
        DataFolder.open(tmp_path)
    with pytest.raises(DataError, match=r"nowhere is not a folder; give a folder with corpus\.jsonl"):
        DataFolder.open(tmp_path / "nowhere")
    assert issubclass(DataError, InputError)


def damaged(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    flipped = bytes(byte ^ 0xFF for byte in content[middle : middle + 20])
    return {
        "cut short": content[:middle],
        "overwritten": content[:middle] + flipped + content[middle + 20 :],
        "wrong checksum": content[:-8] + b"\0" * 8,
        "no gzip at all": b'{"id": "a", "text": "plain"}\n',
    }


@pytest.mark.parametrize("damage", ["cut short", "overwritten", "wrong checksum", "no gzip at all"])
def test_a_damaged_gz_file_is_named(tmp_path, damage):
    corpus = [{"id": str(number), "text": f"text {number * 7919}"} for number in range(500)]
    file = write(tmp_path, corpus, gz=True) / "corpus.jsonl.gz"
    file.write_bytes(damaged(file.read_bytes())[damage])
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz, (after )?line \d+"):
        read_corpus(tmp_path)


# --- Evidence ---


def chunk(document: str, start: int, end: int) -> Chunk:
    return Chunk(f"{document}#{start}-{end}", "text", {"document": document, "start": start, "end": end})


@pytest.mark.parametrize(
    ("start", "end", "gold", "expected"),
    [
        (0, 50, "d", True),  # cut from the passage
        (0, 50, "d#0-50", True),  # the chunk itself
        (0, 50, "other", False),
        (0, 50, "other#0-50", False),
        (0, 50, "d#10-20", True),  # the whole span
        (0, 50, "d#40-60", True),  # just half of it
        (0, 50, "d#40-61", False),  # 10 of 21 characters
        (0, 50, "d#39-61", True),  # 11 of 22
        (50, 60, "d#0-100", False),  # a tenth, from within
        (25, 75, "d#0-100", True),
        (0, 50, "d#50-60", False),  # next to it
        (0, 50, "d#10-10", False),  # no characters
        (0, 50, "d#20-10", False),  # backwards
        (0, 50, "d#10-", False),
        (0, 50, "d#", False),
        (0, 50, "", False),
    ],
)
def test_evidence_worked_out_by_hand(start, end, gold, expected):
    assert is_evidence(chunk("d", start, end), gold) is expected


@pytest.mark.parametrize(
    ("gold", "expected"),
    [("wiki#C#", True), ("wiki#C##0-10", True), ("wiki#C##90-99", False), ("wiki#C", False), ("wiki", False)],
)
def test_ids_may_hold_hashes(gold, expected):
    assert is_evidence(chunk("wiki#C#", 0, 20), gold) is expected


def test_chunks_without_offsets_count_by_their_names():
    assert is_evidence(Chunk("d", "text"), "d")
    assert is_evidence(Chunk("x", "text", {"document": "d"}), "d")
    assert not is_evidence(Chunk("d", "text"), "d#0-4")
    assert not is_evidence(Chunk("d", "text", {"start": 0}), "d#0-4")


@given(st.integers(0, 39), st.integers(1, 20), st.integers(1, 40))
def test_a_span_lies_in_its_passage_and_in_one_or_two_of_its_chunks(start, length, max_tokens):
    document = Document("d", "word " * 8)
    gold = f"d#{start}-{min(start + length, 40)}"
    assert is_evidence(passage(document), gold)
    chunks = chunk_document(document, CallableCounter(len), ChunkConfig(max_tokens))
    found = [index for index, piece in enumerate(chunks) if is_evidence(piece, gold)]
    assert len(found) <= 2
    if max_tokens >= 40:
        assert found == [0]


# --- Real data ---


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data folders at {DATA} (set CORAG_DATA)")
@pytest.mark.parametrize("folder", sorted(DATA.iterdir()) if DATA.is_dir() else [], ids=lambda path: path.name)
def test_real_data_is_read(folder):
    data = DataFolder.open(folder)
    with gzip.open(folder / "queries.jsonl.gz") as lines:
        assert len(data.queries) == sum(1 for _ in lines)
    found = [query for query in data.queries if query.gold and query.gold[0].split("#")[0] in data.documents]
    assert len(found) > len(data.queries) / 2
