"""Finding the documents in a folder, and reading a file's text and structure by the ending of its name."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from corag.errors import CoragError, DataError, MissingExtraError
from corag.files.markdown import Block, FileText, read_markdown, sections_of
from corag.optional import load

TYPES: Mapping[str, str] = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown",
    ".txt": "text", ".text": "text", ".rst": "text",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
}  # fmt: skip
"""Ending of a file's name, in lower case -> how it is read."""

MAX_FILE_BYTES = 256 * 2**20
"""Larger files are not read: one file is in memory as a whole."""

MAX_TEXT_BYTES = 32 * 2**20
"""The same for files that are all text: reading and cutting takes up to 60 times their size."""

READER_VERSION = 1
"""Raised by every change that makes other text or sections of the same file."""

_READERS = {
    "html": "corag.files.web:read_html",
    "pdf": "corag.files.pdf:read_pdf",
    "docx": "corag.files.web:read_docx",
}
"""Type -> function of (bytes, name)."""

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_GUESS_BYTES = 2**16
# Characters that no text has many of: controls, and U+FFFD for bytes that mean nothing.
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")
_NO_TEXT_SHARE = 0.02
_FEW = 3
# The older encodings that files have today; among all that there are, a guess goes astray.
_GUESSES = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1255", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"]


class UnreadableFileError(CoragError):
    """A file without readable text; the message is the reason alone, without the path."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The documents of a folder.

    Attributes:
        root: The folder.
        paths: Files that can be read, relative to `root` with slashes, in order.
        unreadable: Path -> why it cannot be read.
        others: Ending -> number of files of types that are not read.
    """

    root: Path
    paths: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)


def find_files(root: str | Path) -> FoundFiles:
    """Return the documents under a folder, or the one that `root` names.

    Hidden files and folders are left out. A link to a file counts as a file; a link to a folder is not followed.
    """
    folder = Path(root)
    if not folder.is_file() and not folder.is_dir():
        raise DataError(f"{folder} is neither a folder nor a regular file; give a folder of documents, or one document")
    if folder.is_file():
        return FoundFiles(folder.parent, (folder.name,))
    paths: list[str] = []
    unreadable: dict[str, str] = {}
    others: Counter[str] = Counter()

    def refused(error: OSError) -> None:
        unreadable[_printable(Path(error.filename).relative_to(folder))] = f"cannot be listed: {error.strerror}"

    for parent, folders, names in os.walk(folder, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            relative = (Path(parent) / name).relative_to(folder)
            if name.startswith("."):
                continue
            if relative.suffix.lower() not in TYPES:
                others[relative.suffix.lower() or "no ending"] += 1
            elif _printable(relative) != relative.as_posix():
                unreadable[_printable(relative)] = "its name is not valid UTF-8; rename it"
            elif not (folder / relative).is_file():
                unreadable[relative.as_posix()] = "a broken link, or not a regular file"
            else:
                paths.append(relative.as_posix())
    # Folder by folder, whatever the file system's own order.
    paths.sort(key=lambda path: path.split("/"))
    return FoundFiles(folder, tuple(paths), dict(sorted(unreadable.items())), dict(sorted(others.items())))


def _printable(path: Path) -> str:
    return path.as_posix().encode("utf-8", "replace").decode()


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        UnreadableFileError: It cannot be opened, is empty or too large.
    """
    try:
        _check_size(path.stat().st_size, MAX_FILE_BYTES if kind_of(path.name) in ("pdf", "docx") else MAX_TEXT_BYTES)
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot be opened: {error.strerror or error}") from error
    if not data.strip():
        raise UnreadableFileError("empty")
    return data


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise UnreadableFileError(f"{size / 2**20:,.0f} MiB, more than {limit / 2**20:,.0f}; split it")


def kind_of(path: str) -> str:
    """Return how a file is read, by the ending of its name."""
    return TYPES.get(PurePosixPath(path).suffix.lower(), "text")


def parse_file(data: bytes, path: str) -> FileText:
    """Do what `corag.files.read_file` does, in this process and without its limits of time and memory."""
    file = PurePosixPath(path)
    kind = kind_of(path)
    name = re.sub(r"[_\s]+", " ", file.stem).strip() or file.stem
    try:
        if kind in _READERS:
            read: Callable[[bytes, str], FileText] = load(_READERS[kind])
            found = read(data, name)
        else:
            text = decode(data)
            found = read_markdown(text, name) if kind == "markdown" else _read_plain(text, name)
    except MissingExtraError as error:
        raise UnreadableFileError("needs a package that is missing: pip install 'corag[documents]'") from error
    except RecursionError as error:
        raise UnreadableFileError("its elements are nested too deeply") from error
    _check_size(len(found.text), MAX_TEXT_BYTES)
    if not any(section.blocks for section in found.sections):
        scanned = "; pages that are pictures need text recognition (OCR) first" if kind == "pdf" else ""
        raise UnreadableFileError(f"it holds no text{scanned}")
    try:
        found.text.encode()
    except UnicodeEncodeError:
        # A lone surrogate cannot be stored; offsets stay as they are.
        return replace(found, text=found.text.encode("utf-8", "replace").decode())
    return found


def _read_plain(text: str, name: str) -> FileText:
    blocks = [Block(len(text) - len(text.lstrip()))] if text.strip() else []
    return FileText(text, sections_of(text, (), blocks, name), lines=True)


def decode(data: bytes) -> str:
    """Return the text of bytes.

    Text is in UTF-8, or in UTF-16 or UTF-32 with a byte order mark, or in an older encoding. A byte order mark is no
    part of the text; line ends stay as they are. What is mostly UTF-8 keeps its good characters, each bad byte becomes
    U+FFFD. Older encodings are guessed by charset-normalizer; without it, or a guess, they are Windows-1252.

    Raises:
        UnreadableFileError: The bytes are no text.
    """
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8-sig")
    text = data.decode(encoding, "replace")
    if encoding == "utf-8-sig":
        num_bad = text.count("\ufffd") - data.count("\ufffd".encode())
        if num_bad and sum(character > "\x7f" for character in text) <= 3 * num_bad:
            text = data.decode(_guess(data[:_GUESS_BYTES]), "replace")
    sample = text[:_GUESS_BYTES]
    if len(_NO_TEXT.findall(sample)) > max(_FEW, _NO_TEXT_SHARE * len(sample)):
        raise UnreadableFileError("it is no text, whatever its name says")
    return text


def _guess(data: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    best = from_bytes(data, cp_isolation=_GUESSES).best()
    return "cp1252" if best is None else str(best.encoding)


def reading_key(data_digest: str, path: str) -> str:
    """Return a hash of what the text of a file depends on: its bytes, its name, and the readers' version."""
    return hashlib.sha256(f"{READER_VERSION} {data_digest} {path}".encode()).hexdigest()[:32]
