"""From documents of five formats to citations, through a change and a deletion."""

import json
import re
from pathlib import Path

import pytest

import corag
from corag.files import read_file
from corag.index import ChunkIndex
from corag.text.documents import citation
from corag.types import Chunk
from tests.corag.files.worlds import docx, html, pdf

pytest.importorskip("lancedb")

DEVICES = ["pump", "lamp", "oven", "saw", "drill", "press", "fan", "kiln", "crane"]


def write_documents(folder: Path) -> None:
    """Twelve documents of five formats; each device has its own numbers in its own sections."""

    def sections(device: str, number: int) -> tuple[str, str, str]:
        return (
            f"The {device} is made by the company Number{number} in the town of Place{number}.",
            f"To start the {device}, turn its handle {10 + number} times to the left and wait for the green light.",
            f"The oil of the {device} must be changed after {100 + number} hours of work by a trained person.",
        )

    for number, device in enumerate(DEVICES):
        about, begin, oil = sections(device, number)
        kind = number % 4
        if kind == 0:
            text = f"# The {device}\n\n{about}\n\n## Use\n\n### Starting\n\n{begin}\n\n## Care\n\n{oil}\n"
            (folder / f"{device}.md").write_text(text)
        elif kind == 1:
            page = f"<h1>The {device}</h1><p>{about}</p><h2>Starting</h2><p>{begin}</p><h2>Care</h2><p>{oil}</p>"
            (folder / f"{device}.html").write_bytes(html(page, title=f"The {device} - Works"))
        elif kind == 2:
            words = [[line[:60], line[60:]] for line in (about, begin, oil)]
            pages = [[f"The {device}", *words[0]], ["Starting", *words[1]], ["Care", *words[2]]]
            data = pdf(pages, outline={"Starting": 2, "Care": 3}, title=f"The {device}")
            (folder / f"{device}.pdf").write_bytes(data)
        else:
            parts = [("Title", f"The {device}"), ("Normal", about), ("Heading 1", "Starting"), ("Normal", begin),
                     ("Heading 1", "Care"), ("Normal", oil)]  # fmt: skip
            (folder / f"{device}.docx").write_bytes(docx(parts))
    (folder / "notes").mkdir()
    for number in range(3):
        (folder / "notes" / f"day {number:02}.txt").write_text(
            f"On day {number} we met at gate {number * 7} and ate.\n"
        )


START, OIL = (
    "How many times do I turn the handle to start the {}?",
    "After how many hours is the oil of the {} changed?",
)
QUESTIONS = [
    (START.format("pump"), "pump.md", "line 9: The pump > Use > Starting", "10 times"),
    (OIL.format("drill"), "drill.md", "line 13: The drill > Care", "500 hours"),
    ("Which company makes the crane?", None, None, None),
    (START.format("lamp"), "lamp.html", "The lamp > Starting", "11 times"),
    (START.format("oven"), "oven.pdf", "page 2: The oven > Starting", "12 times"),
    (OIL.format("fan"), "fan.pdf", "page 3: The fan > Care", "106 hours"),
    (START.format("kiln"), "kiln.docx", "The kiln > Starting", "17 times"),
    ("Where did we meet on day 2?", "notes/day 02.txt", "line 1: day 02", "gate 14"),
]


@pytest.mark.slow
def test_documents_changed_and_asked(tmp_path: Path, capsys: pytest.CaptureFixture):
    from corag.cli.main import main

    folder, uri = tmp_path / "docs", str(tmp_path / "index")
    folder.mkdir()
    write_documents(folder)

    def index() -> str:
        assert main(["index", "--data", str(folder), "--out", uri, "--quiet"]) == 0
        return capsys.readouterr().out

    assert re.match(r"files: 12 new; \d+ chunks embedded, 0 kept\n", index())
    # One is changed, one is deleted, two cannot be read.
    drill = folder / "drill.md"
    drill.write_text(drill.read_text().replace("104 hours", "500 hours"))
    (folder / "crane.md").unlink()
    (folder / "torn.pdf").write_bytes((folder / "oven.pdf").read_bytes()[:400])
    (folder / "locked.pdf").write_bytes(pdf([["The secret."]], password="x"))
    said = index()
    assert re.match(r"files: 10 unchanged, 1 changed, 1 deleted, 2 skipped; 1 chunks embedded, \d+ kept\n", said)
    assert "  skipped: locked.pdf: encrypted; save it without a password\n  skipped: torn.pdf: damaged" in said
    assert index().startswith("files: 11 unchanged, 2 skipped; nothing to do\n")

    assert main(["ask", QUESTIONS[0][0], "--index", uri, "--method", "top-k", "--reader", "extractive", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    opened, embedder = ChunkIndex.open(uri), corag.embedder()
    for question, document, place, fact in QUESTIONS:
        reply = corag.ask(question, opened, method="top-k", reader="extractive", embedder=embedder).to_dict()
        chunks = reply["chunks"]
        assert question != printed["question"] or chunks == printed["chunks"]
        if document is None:
            assert chunks and not any("crane" in chunk["text"] for chunk in chunks)
            continue
        best = chunks[0]
        separator = ": " if ":" not in place else ", "
        assert best["citation"] == f"{document}{separator}{place}"
        assert best["metadata"]["document"] == document and fact in best["text"].replace("\n", " ")
        # The span leads to the same words in what the file says.
        text = read_file((folder / document).read_bytes(), document).text
        span = text[best["metadata"]["start"] : best["metadata"]["end"]]
        assert best["text"].endswith(span) and fact in span.replace("\n", " ")
        if "line" in best["metadata"]:
            assert fact in (folder / document).read_text().splitlines()[best["metadata"]["line"] - 1]


def test_citations_of_chunks_of_no_file():
    assert citation(Chunk("a", "text")) == "a"
    titled = Chunk("a#0-4", "T\ntext", {"document": "a", "title": "T", "start": 0, "end": 4})
    assert citation(titled) == "a: T"
