"""What the files of a folder repeat at their beginning and end: licences, notices, heads and feet of a site."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import PurePosixPath

from corag.files.chunks import paragraphs, trimmed
from corag.files.markdown import FileSection, FileText, blanked
from corag.text.chunking import COLONS, Span

_LEAST_FILES, _COMPARED = 6, 16
"""Files of one kind that a folder has to have, and how many of them are compared."""
_SHARE = 0.75
"""Share of the files compared that repeat what is no text of each."""
_EDGE, _EDGE_CHARACTERS = 12, 2**14
"""Paragraphs at the beginning and at the end that are looked at, and characters of a section."""
_LEAST_LETTERS = 20
"""Letters and digits of a paragraph that is left out: a shorter one costs little, and may be what most files are."""
_TABLES = ("csv", "json", "jsonl", "xlsx")


def compared_files(kinds: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return with which files of its folder and kind each file is compared; those of small folders with none.

    Args:
        kinds: Path -> how the file is read; see `corag.files.read.FoundFiles`.

    Those compared are the same for all files of a folder and kind, drawn by a hash of their names: of a large folder, a
    file that is added later hardly ever changes them, and a small one is soon read again.
    """
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, kind in kinds.items():
        folders[PurePosixPath(path).parent.as_posix(), kind].append(path)
    compared: dict[str, tuple[str, ...]] = {}
    for (_, kind), paths in folders.items():
        if len(paths) >= _LEAST_FILES and kind not in _TABLES:
            drawn = sorted(paths, key=lambda path: hashlib.sha256(path.encode()).digest())[:_COMPARED]
            compared |= dict.fromkeys(paths, tuple(drawn))
    return compared


def repeated_paragraphs(files: Mapping[str, FileText]) -> dict[str, str]:
    """Return the paragraphs that most of these files have at their beginning or end, each with one that has it."""
    having: dict[str, list[str]] = defaultdict(list)
    for path, file in files.items():
        for words in {_words(file, span) for edge in _edges(file) for span in edge}:
            having[words].append(path)
    least = max(_SHARE * len(files), _LEAST_FILES - 1)
    return {words: paths[0] for words, paths in having.items() if len(paths) >= least and not words.endswith(COLONS)}


def without_repeated(path: str, file: FileText, repeated: Mapping[str, str]) -> FileText:
    """Return a file with spaces in place of the paragraphs that its folder repeats at its beginning or end.

    Headings stay. So does one copy of each paragraph, in the file that `repeated` names, and a file that has no other
    text.
    """
    spans: set[Span] = set()
    for edge in _edges(file):
        run = takewhile(lambda span: _words(file, span) in repeated, edge)
        elsewhere = (span for span in run if repeated[_words(file, span)] != path)
        spans.update(span for span in elsewhere if sum(map(str.isalnum, file.text[slice(*span)])) >= _LEAST_LETTERS)
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and not file.text[joined[-1][1] : start].strip():
            start = joined.pop()[0]
        joined.append((start, end))
    text = blanked(file.text, joined)
    sections = tuple(_with_blocks(section, text, dict(joined)) for section in file.sections)
    return replace(file, text=text, sections=sections) if any(one.blocks for one in sections) else file


def _with_blocks(section: FileSection, text: str, ends: Mapping[int, int]) -> FileSection:
    """Return a section with the blocks that still have text; `ends` are those of what was blanked, by its start."""
    borders = [*(block.start for block in section.blocks), section.end]
    blocks = [
        block._replace(start=min(ends.get(block.start, block.start), end))
        for block, (start, end) in zip(section.blocks, pairwise(borders), strict=True)
        if text[start:end].strip()
    ]
    return replace(section, blocks=tuple(blocks))


def _edges(file: FileText) -> tuple[Sequence[Span], Sequence[Span]]:
    """Return the first paragraphs of a file and its last ones, both from the edge on, without headings."""
    first: list[Span] = []
    last: list[Span] = []
    for section in file.sections:
        if len(first) < _EDGE:
            first += _paragraphs(file.text, section.body, min(section.end, section.body + _EDGE_CHARACTERS))
    for section in reversed(file.sections):
        if len(last) < _EDGE:
            last += _paragraphs(file.text, max(section.body, section.end - _EDGE_CHARACTERS), section.end)[::-1]
    return first[:_EDGE], last[:_EDGE]


def _paragraphs(text: str, start: int, end: int) -> list[Span]:
    """Return what is between blank lines."""
    return [(first, last) for first, last, _ in trimmed(text, paragraphs(text, (start, end)))]


def _words(file: FileText, span: Span) -> str:
    return " ".join(file.text[slice(*span)].casefold().split())
