"""Finding the documents in a folder, and reading a file's text and structure.

The ending of its name says how a file is read; if it is not known, the first bytes do. `.gz` files are unpacked.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from shutil import which
from typing import BinaryIO, NamedTuple, cast
from unicodedata import normalize

from corag.errors import CoragError, DataError
from corag.files.markdown import FileText
from corag.optional import load, to_install
from corag.text.chunking import CHUNKING_VERSION

TYPES: Mapping[str, str] = {
    ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown", ".rmd": "markdown", ".qmd": "markdown",
    ".txt": "text", ".text": "text", ".rst": "rst",
    ".adoc": "asciidoc", ".asciidoc": "asciidoc", ".asc": "asciidoc", ".tex": "tex", ".latex": "tex",
    ".eml": "mail", ".mbox": "mail", ".ipynb": "notebook", ".epub": "epub", ".rtf": "rtf",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx", ".pptx": "pptx", ".xlsx": "xlsx",
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
}  # fmt: skip
"""Ending of a file's name, in lower case -> how it is read."""


class Reader(NamedTuple):
    """How files of one type are read.

    Attributes:
        function: Path of a function of (bytes, name).
        version: Raised by every change of the text or structure that it returns: indexes then read such files again.
        needs: Packages and programs without which it reads nothing.
    """

    function: str
    version: int
    needs: tuple[str, ...] = ()


_PAGES = ("bs4", "lxml", "markdownify")
READERS: Mapping[str, Reader] = {
    "markdown": Reader("corag.files.plain:read_md", 9),
    "text": Reader("corag.files.plain:read_text", 4),
    "csv": Reader("corag.files.plain:read_csv", 8),
    "jsonl": Reader("corag.files.plain:read_jsonl", 4),
    "json": Reader("corag.files.plain:read_json", 4),
    "html": Reader("corag.files.web:read_html", 9, _PAGES),
    "docx": Reader("corag.files.web:read_docx", 6, ("mammoth", *_PAGES)),
    "pdf": Reader("corag.files.pdf:read_pdf", 3, ("pypdfium2",)),
    "pptx": Reader("corag.files.office:read_pptx", 8, ("pptx", "openpyxl")),
    "xlsx": Reader("corag.files.office:read_xlsx", 6, ("openpyxl",)),
    "rst": Reader("corag.files.markup:read_rst", 6, ("docutils", *_PAGES)),
    "asciidoc": Reader("corag.files.markup:read_asciidoc", 4),
    "tex": Reader("corag.files.markup:read_tex", 5, ("pylatexenc",)),
    "mail": Reader("corag.files.plain:read_mail", 6),
    "notebook": Reader("corag.files.plain:read_notebook", 3),
    "epub": Reader("corag.files.plain:read_epub", 7, _PAGES),
    "man": Reader("corag.files.web:read_man", 7, ("mandoc", *_PAGES)),
}
"""Type -> its reader."""

MAX_FILE_BYTES = 256 * 2**20
"""Larger files are not read: one file is in memory as a whole."""
MAX_TEXT_BYTES = 32 * 2**20
"""The same for files that are all text: reading and cutting takes up to 60 times their size."""
MAX_LINES = 2**20
"""Files with more lines are not read: each line may be a sentence, which takes a kilobyte of memory."""

_PACKED = ("pdf", "docx", "pptx", "xlsx", "epub")
# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# A folder that every index has.
_INDEX = "corag_chunks.lance"
_GUESS_BYTES = 2**16
_INFO_INDEX = b"\0\b[index\0\b]"
"""Where the index of a manual for Info begins."""
# Characters that no text has many of: controls, and U+FFFD for bytes that mean nothing.
_NO_TEXT = dict.fromkeys([*range(9), *range(14, 27), *range(28, 32), *range(127, 160), 0xFFFD])
_NO_TEXT_SHARE = 0.02
NESTED = "its elements are nested too deeply"
_NO_READER = "{} is not read; save it as .docx"
_NOT_TEXT = "not text, and of no type that is read"
# The older encodings that files have today; among all that there are, a guess goes astray.
_GUESSES = ["cp1252", "cp1250", "cp1251", "cp1253", "cp1255", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949"]

# Languages of Windows-1250. Texts in others that look as good in it as in Windows-1252 are in that.
_CENTRAL = {"Croatian", "Czech", "Hungarian", "Polish", "Romanian", "Slovak", "Slovene"}


class UnreadableFileError(CoragError):
    """A file without readable text; the message is the reason alone, without the path."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The documents of a folder.

    Attributes:
        root: The folder.
        kinds: Path -> how the file is read, of files that can be read, as far as their first bytes say; paths are
            relative to `root`, with slashes, in order.
        skipped: Path -> why the file is not read.
    """

    root: Path
    kinds: Mapping[str, str]
    skipped: Mapping[str, str]


def find_files(root: str | Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> FoundFiles:
    """Return the documents under a folder, or the one that `root` names.

    Hidden files and folders are left out, and so are indexes. A link to a folder is not followed, and one to a file of
    the folder is that file. Other links are named in `skipped`, as they may be somebody else's, to files of yours.

    Args:
        root: The folder, or one document.
        include: Globs; only files that match one of them are considered. A glob matches the path below the folder, or
            the name of the file or of a folder on the path; `*` also matches slashes.
        exclude: Globs of files that are left out.

    Raises:
        DataError: There is no such folder or file.
    """
    folder = Path(root)
    if folder.is_file():
        return _readable(folder.parent, [PurePosixPath(folder.name)], {}, is_named=True)
    if not folder.is_dir():
        raise DataError(f"{folder} is neither a folder nor a regular file; give a folder of documents, or one document")
    skipped: dict[str, str] = {}
    paths: list[PurePosixPath] = []

    def refused(error: OSError) -> None:
        skipped[_printable(Path(error.filename).relative_to(folder))] = f"cannot be listed: {error.strerror}"

    for parent, folders, names in os.walk(folder, onerror=refused):
        if _INDEX in folders and Path(parent) != folder:
            folders.clear()
            continue
        below = PurePosixPath(Path(parent).relative_to(folder).as_posix())
        folders[:] = [
            name for name in folders if not name.startswith(".") and not name.endswith(".lance")
            and not _matches(below / name, exclude)
        ]  # fmt: skip
        for name in folders:
            path = Path(parent, name)
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                skipped[_printable(below / name)] = "a link to a folder elsewhere, which is not followed"
        paths += [below / name for name in names if not name.startswith(".")]
    paths = [path for path in paths if not _matches(path, exclude) and (not include or _matches(path, include))]
    # Folder by folder, whatever the file system's own order.
    return _readable(folder, sorted(paths, key=lambda path: path.parts), skipped)


def _matches(path: PurePosixPath, globs: Sequence[str]) -> bool:
    # One spelling of accented letters: names of files have another one on some systems.
    names = [normalize("NFC", name) for name in (path.as_posix(), *path.parts)]
    spelled = [normalize("NFC", glob.rstrip("/").removeprefix("./")) for glob in globs]
    # As elsewhere, `**/` is also no folder at all.
    return any(fnmatchcase(name, one) for glob in spelled for one in (glob, glob.replace("**/", "")) for name in names)


def _readable(
    root: Path, paths: Sequence[PurePosixPath], skipped: dict[str, str], *, is_named: bool = False
) -> FoundFiles:
    # A document that is named by itself may be a link to wherever it is.
    links = {path for path in paths if (root / path).is_symlink()}
    inside = root.resolve()
    own = {(root / path).resolve(): path for path in paths if path not in links}
    kinds: dict[str, str] = {}
    for path in paths:
        try:
            if _printable(path) != path.as_posix():
                raise UnreadableFileError("its name is not valid UTF-8; rename it")
            if not (root / path).is_file():
                raise UnreadableFileError("a broken link, or not a regular file")
            if path in links and not is_named and not (root / path).resolve().is_relative_to(inside):
                raise UnreadableFileError("a link out of the folder, which is not followed; copy the file")
            if path in links and (target := own.get((root / path).resolve())) is not None:
                raise UnreadableFileError(f"a link to {target}")
            kinds[path.as_posix()] = _checked_kind(root / path)
        except UnreadableFileError as error:
            skipped[_printable(path)] = str(error)
    return FoundFiles(root, kinds, dict(sorted(skipped.items())))


def _printable(path: PurePath) -> str:
    return path.as_posix().encode("utf-8", "replace").decode()


def _checked_kind(path: Path) -> str:
    """Return how a file is read; `UnreadableFileError` if it is empty, too large, or not text and of no known type."""
    data = _bytes_of(path, _GUESS_BYTES)
    if not data:
        raise UnreadableFileError("empty")
    _check_size(path.stat().st_size, MAX_FILE_BYTES)
    kind = kind_of(path.name, data)
    if kind not in READERS:
        raise UnreadableFileError(_NO_READER.format(kind.upper()))
    if _ending(path.name) not in TYPES and kind == "text":
        if b"\0" in data.replace(_INFO_INDEX, b"") and not data.startswith(tuple(_MARKS)):
            raise UnreadableFileError(_NOT_TEXT)
        decode(data)
    return kind


def _ending(path: str) -> str:
    return PurePosixPath(path.lower().removesuffix(".gz")).suffix


def _bytes_of(path: Path, limit: int) -> bytes:
    """Return at most `limit` bytes of a file, unpacked."""
    try:
        with path.open("rb") if path.suffix.lower() != ".gz" else gzip.open(path) as file:
            return cast(BinaryIO, file).read(limit)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFileError(f"damaged: {error}") from error
    except OSError as error:
        raise UnreadableFileError(f"cannot be opened: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, unpacked.

    Raises:
        UnreadableFileError: It cannot be opened, is damaged, empty or too large.
    """
    data = _bytes_of(path, MAX_FILE_BYTES + 1)
    if not data.strip():
        raise UnreadableFileError("empty")
    _check_size(len(data), MAX_FILE_BYTES if kind_of(path.name, data) in _PACKED else MAX_TEXT_BYTES)
    return data


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise UnreadableFileError(f"{size / 2**20:,.0f} MiB, more than {limit / 2**20:,.0f}; split it")


def kind_of(path: str, data: bytes) -> str:
    """Return how a file is read, by the ending of its name, or else by its first bytes."""
    return TYPES.get(_ending(path)) or _kind_by(data[:_GUESS_BYTES])


def _kind_by(beginning: bytes) -> str:
    if beginning.startswith(b"%PDF-"):
        return "pdf"
    if beginning.startswith(rb"{\rtf"):
        return "rtf"
    if beginning[:1] in (b".", b"'"):
        return "man" if any(line.startswith((b".TH ", b".Dd ", b".so ")) for line in beginning.split(b"\n")) else "text"
    if (page := beginning.lstrip())[:1] == b"<":
        while page.startswith((b"<?xml", b"<!--")):
            page = page.partition(b"?>" if page.startswith(b"<?") else b"-->")[2].lstrip()
        return "html" if page[:14].lower().startswith((b"<!doctype html", b"<html")) else "text"
    head = HeaderParser().parsestr(beginning.decode("latin-1"), headersonly=True)
    return "mail" if "Message-ID" in head or "MIME-Version" in head else "text"


def parse_file(data: bytes, path: str) -> FileText:
    """Do what `corag.files.read_file` does, in this process and without its limits of time and memory."""
    kind = kind_of(path, data)
    if kind not in READERS:
        raise UnreadableFileError(_NO_READER.format(kind.upper()))
    try:
        read: Callable[[bytes, str], FileText] = load(READERS[kind].function)
        file = read(data, _name_of(path))
    except ImportError as error:
        raise UnreadableFileError(f"needs a package that is missing: {to_install('documents')}") from error
    except RecursionError as error:
        raise UnreadableFileError(NESTED) from error
    _check_size(len(file.text), MAX_TEXT_BYTES)
    if (lines := file.text.count("\n")) > MAX_LINES:
        raise UnreadableFileError(f"{lines:,} lines, more than {MAX_LINES:,}; split it")
    if not any(section.blocks for section in file.sections):
        scanned = "; pages that are pictures need text recognition (OCR) first" if kind == "pdf" else ""
        raise UnreadableFileError(f"it holds no text{scanned}")
    # A lone surrogate cannot be stored; offsets stay as they are.
    return replace(file, text=file.text.encode("utf-8", "replace").decode())


def _name_of(path: str) -> str:
    """Return the title of a file that gives none itself: its name, behind the folder's if it has no ending."""
    file = PurePosixPath(path[:-3] if path.lower().endswith(".gz") else path)
    # What ends in digits, such as "MPL-1.1", ends in a version.
    stem, ending = (file.name, "") if file.suffix[1:].isdigit() else (file.stem, file.suffix)
    name = " ".join(stem.replace("_", " ").split()) or stem
    return name if ending or not file.parent.name else f"{file.parent.name} {name}"


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
    if len(sample) - len(sample.translate(_NO_TEXT)) > max(3, _NO_TEXT_SHARE * len(sample)):
        raise UnreadableFileError(_NOT_TEXT)
    return text


def _guess(data: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return "cp1252"
    found = {str(match.encoding): match.language for match in from_bytes(data, cp_isolation=_GUESSES)}  # best first
    is_western = "cp1252" in found and found.get("cp1250") not in _CENTRAL
    return next((name for name in found if name != "cp1250" or not is_western), "cp1252")


def missing_needs(kinds: Set[str]) -> list[str]:
    """Return the packages and programs that readers of these kinds need and this machine lacks."""
    needs = {need for kind in kinds for need in READERS[kind].needs}
    return sorted(need for need in needs if find_spec(need) is None and which(need) is None)


def reading_key(data_digest: str, path: str, kind: str) -> str:
    """Return a hash of what the chunks of a file depend on: its bytes, its name, and the versions of the code."""
    version = f"{CHUNKING_VERSION}.{READERS[kind].version if kind in READERS else 0}"
    return hashlib.sha256(f"{version} {kind} {data_digest} {path}".encode()).hexdigest()[:32]
