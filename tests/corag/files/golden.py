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
from tests.corag.files.worlds import SAMPLES, book, html, pdf, sheets, slides
from tests.corag.files.worlds import docx as word
from tests.paths import GOLDEN

PATH = GOLDEN / "readings.json"
GUIDE = (SAMPLES / "guide.md").read_text("utf-8")


def samples():
    """Name -> bytes; manual pages are left out, as other programs render them."""
    body = "<h1>Pump</h1><p>It <b>pumps</b> water.<h2 id=parts>Parts</h2><table><tr><th>part<tr><td>a|b</table>"
    styled = [("Title", "The pump"), ("Heading 1", "Install"), ("Normal", "Open it."), ("table", [["part"], ["a"]])]
    outline = {"Install": 1, "  Linux": 2}
    pages = [["1 Install", "Open the val-", "ve. It has a valve."], ["1.1 Linux", "Run the program."]]
    return {
        "guide.md": GUIDE.encode(),
        "notes.txt": ("Notes of a well-\nknown imple-\nmentation. " * 8).encode(),
        "prices.csv": b"name,price\n" + b"".join(b"part %d,%d\n" % (row, row) for row in range(12)),
        "rows.jsonl": b'{"title": "Pump", "text": "It pumps.", "tags": ["a", 1]}\n"alone"\n',
        "page.html": html(body, title="Pump - My site"),
        "pump.docx": word(styled),
        "pump.pdf": pdf(pages, outline=outline, title="The pump", head="Company"),
        "talk.pptx": slides(),
        "list.xlsx": sheets(),
        "pump.rst": b"Pump\n====\n\nUse :func:`open`.\n\n.. note:: Wait.\n\n::\n\n    x = 1\n",
        "pump.adoc": b"= Pump\n\nIt pumps.\n\n|===\n|part |price\n\n|seal |5\n|===\n",
        "pump.tex": b"\\section{Pump}\nIt \\emph{pumps}.\n\\begin{verbatim}\nx = 1\n\\end{verbatim}\n",
        "pump.eml": b"From: a@b.org\nSubject: Pump\nMIME-Version: 1.0\n\nIt pumps.\n",
        "pump.ipynb": b'{"cells": [{"cell_type": "code", "source": "x = 1", "outputs": []}]}',
        "pump.epub": book(),
    }


def changed_alone(made, recorded):
    """Names of readers, or "chunking", of which something is not as recorded although the version is."""
    old, new = ({**each["readers"], "chunking": each["chunking"]} for each in (recorded, made))
    changed = [name for name in new if name in old and new[name] != old[name]]
    return [name for name in changed if new[name]["version"] <= old[name]["version"]]


def readings():
    """What the code of now makes of the samples."""
    tokens, sizes = corag.tokens(), corag.ChunkConfig(24)
    files = {name: parse_file(data, name) for name, data in samples().items()}
    chunks = {name: chunk_file(name, file, tokens, sizes) for name, file in files.items()}
    chunks["corpus"] = list(chunk_document(Document("doc", GUIDE, "Pump"), tokens, sizes))
    kinds = {name: kind_of(name, b"") for name in files}
    return {
        "readers": {
            kinds[name]: {
                "version": READERS[kinds[name]].version,
                "text": file.text,
                "sections": [[" > ".join(section.headings), *map(list, section.blocks)] for section in file.sections],
                "pages": list(file.pages),
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
