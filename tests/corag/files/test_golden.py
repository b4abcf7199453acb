"""Golden readings: what each reader and the cutting made of a sample, and the version that they had.

Whoever changes what a reader returns has to raise its version, or indexes keep what they read before. After a change
that is meant, or for another sample, raise the version that the test names, write them again and read the difference:

    python -m tests.corag.files.test_golden
"""

import json

import corag
from corag.files.chunks import chunk_file
from corag.files.read import READERS, kind_of, parse_file
from corag.text.chunking import CHUNKING_VERSION, chunk_document
from corag.text.documents import Document, citation
from tests.corag.files.worlds import PUMP, SAMPLES, VALVE
from tests.paths import GOLDEN

PATH = GOLDEN / "readings.json"


def changed_alone(made, recorded):
    """Names of readers, or "chunking", of which something is not as recorded although the version is."""
    old, new = ({**each["samples"], "chunking": each["chunking"]} for each in (recorded, made))
    changed = [name for name in new if name in old and new[name] != old[name]]
    return sorted({new[name].get("reader", name) for name in changed if new[name]["version"] <= old[name]["version"]})


def readings():
    """What the code of now makes of the samples."""
    tokens, sizes = corag.tokens(), {size: corag.ChunkConfig(size) for size in (24, 96)}
    # Manual pages are left out, as other programs render them.
    paths = sorted({*SAMPLES.iterdir()} - {PUMP, VALVE})
    files = {path.name: parse_file(path.read_bytes(), path.name) for path in paths}
    chunks = {
        f"{name}, {size} tokens": chunk_file(name, file, tokens, config)
        for name, file in files.items()
        for size, config in sizes.items()
    }
    guide = (SAMPLES / "guide.md").read_text("utf-8")
    chunks["corpus"] = list(chunk_document(Document("doc", guide, "Pump"), tokens, sizes[24]))
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
            "chunks": {
                name: [[chunk.id, citation(chunk), chunk.text] for chunk in made] for name, made in chunks.items()
            },
        },
    }


def test_readings_change_only_with_the_version_of_their_reader():
    made, recorded = readings(), json.loads(PATH.read_text())
    assert {one["reader"] for one in recorded["samples"].values()} == READERS.keys() - {"man"}
    unraised = changed_alone(made, recorded)
    assert not unraised, f"raise their version in corag/files/read.py or corag/text/chunking.py: {unraised}"
    assert made == recorded, "run: python -m tests.corag.files.test_golden"


if __name__ == "__main__":
    made = readings()
    if PATH.exists() and (names := changed_alone(made, json.loads(PATH.read_text()))):
        raise SystemExit(f"not written: raise the version of {', '.join(names)}, or indexes keep what they read before")
    PATH.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
