"""Golden readings: what each reader and the cutting made of a sample, and the version that they had.

After a change that is meant, raise the version that the test names, write them again and read the difference:

    python -m tests.corag.files.golden
"""

import json

import corag
from corag.files.chunks import chunk_file
from corag.files.read import READERS, kind_of, parse_file
from corag.text.chunking import CHUNKING_VERSION, chunk_document
from corag.text.documents import Document
from tests.corag.files.worlds import SAMPLES, book, html, mail, pdf, sheets, slides
from tests.corag.files.worlds import docx as word
from tests.paths import GOLDEN

PATH = GOLDEN / "readings.json"
GUIDE = (SAMPLES / "guide.md").read_text("utf-8")


def samples():
    """Name -> bytes; manual pages are left out, as other programs render them."""
    page = """<header><p>My site</p></header><article><h1>Pump<a class="headerlink" href="#p">¶</a></h1>
    <p>It <b>pumps</b> <a href="x">water</a>.<ul><li>one<li>two</ul>
    <h2 id=parts>Parts &amp; prices</h2><table><tr><th>part<th>price<tr><td>a|b<td>5</table>
    <pre><code>x = 1
y = 2</code></pre><img alt="picture" src="x.png"></article><aside>Ads</aside>"""
    styled = [
        ("Title", "The pump"), ("Heading 1", "Install"), ("Normal", "Open the valve."), ("Heading 2", "Parts"),
        ("table", [["part", "price"], ["valve", "5"]]), ("List Bullet", "one"), ("List Bullet", "two"),
        ("Heading 1", "Repair"), ("Normal", "Close it."),
    ]  # fmt: skip
    outline = {"Install": 1, "  Linux": 2}
    pages = [["1 Install", "Open the val-", "ve. It has a valve."], ["1.1 Linux", "Run the program."]]
    cells = [
        {"cell_type": "markdown", "source": ["# Pump\n", "It pumps."]},
        {"cell_type": "code", "source": "run()", "outputs": [
            {"output_type": "stream", "text": ["on\n"]},
            {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 99, "text/plain": "<Figure>"}},
        ]},
        {"cell_type": "raw", "source": ""},
    ]  # fmt: skip
    written = ("guide.md", "install.md", "pump.rst", "pump.adoc", "pump.tex")
    return {name: (SAMPLES / name).read_bytes() for name in written} | {
        "notes.txt": ("Notes of a well-\nknown imple-\nmentation. " * 8).encode(),
        "prices.csv": b"name,price\n" + b"".join(b"part %d,%d\n" % (row, row) for row in range(12)),
        "rows.jsonl": b'{"title": "Pump", "text": "It pumps.", "tags": ["a", 1], "none": null}\n\n{"id": 7}\n"alone"\n',
        "page.html": html(page, title="Pump - My site"),
        "pump.docx": word(styled),
        "pump.pdf": pdf(pages, outline=outline, title="The pump", head="Company"),
        "talk.pptx": slides(),
        "list.xlsx": sheets(),
        "pump.eml": mail(),
        "box.mbox": b"".join(b"From a@b Mon\n" + mail(subject) + b"\n" for subject in ("One", "Two")),
        "pump.ipynb": json.dumps({"cells": cells, "nbformat": 4}).encode(),
        "pump.epub": book(),
    }


def changed_alone(made, recorded):
    """Names of readers, or "chunking", of which something is not as recorded although the version is."""
    old, new = ({**each["samples"], "chunking": each["chunking"]} for each in (recorded, made))
    changed = [name for name in new if name in old and new[name] != old[name]]
    return sorted({new[name].get("reader", name) for name in changed if new[name]["version"] <= old[name]["version"]})


def readings():
    """What the code of now makes of the samples."""
    tokens, sizes = corag.tokens(), corag.ChunkConfig(24)
    files = {name: parse_file(data, name) for name, data in samples().items()}
    chunks = {name: chunk_file(name, file, tokens, sizes) for name, file in files.items()}
    chunks["corpus"] = list(chunk_document(Document("doc", GUIDE, "Pump"), tokens, sizes))
    kinds = {name: kind_of(name, b"") for name in files}
    return {
        "samples": {
            name: {
                "reader": kinds[name],
                "version": READERS[kinds[name]].version,
                "text": file.text,
                "sections": [
                    [" > ".join(section.headings), section.anchor, *map(list, section.blocks)]
                    for section in file.sections
                ],
                "fields": dict(file.fields),
                "pages": list(file.pages),
                "lines": file.lines,
            }
            for name, file in files.items()
        },
        "chunking": {
            "version": CHUNKING_VERSION,
            "chunks": {name: [[chunk.id, chunk.text] for chunk in made] for name, made in chunks.items()},
        },
    }


if __name__ == "__main__":
    made = readings()
    if PATH.exists() and (names := changed_alone(made, json.loads(PATH.read_text()))):
        raise SystemExit(f"not written: raise the version of {', '.join(names)}, or indexes keep what they read before")
    PATH.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
