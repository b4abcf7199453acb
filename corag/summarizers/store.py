"""Summaries kept on disk under the hash of what they were made from, one small file each.

A file is written beside its place and moved there, so that it is whole or not there, whoever else writes. The folder
may be deleted at any time, which costs making the summaries again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from corag.errors import DataError
from corag.types import Summarizer, SummaryRequest


class SummaryStore:
    """A folder of summaries; may be shared by threads and processes.

    Args:
        folder: Made when the first summary is kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, key: str) -> str | None:
        """Return the summary under a key, or None.

        Raises:
            DataError: A file cannot be read, or is not one of a summary.
        """
        file = self._file(key)
        try:
            text = json.loads(file.read_text(encoding="utf-8"))["summary"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unusable(file, error) from error
        if not isinstance(text, str):
            raise self._unusable(file, "its summary is not a text")
        return text

    def put(self, key: str, summary: str, *, summarizer: str, sources: tuple[str, ...]) -> None:
        """Keep a summary, with who made it from what for people who look into the file.

        Raises:
            DataError: The file cannot be written.
        """
        file = self._file(key)
        content = {"summary": summary, "summarizer": summarizer, "sources": sources}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as part:
                json.dump(content, part, ensure_ascii=False)
            Path(temporary).replace(file)
        except OSError as error:
            raise self._unusable(file, error) from error

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"

    def _unusable(self, file: Path, reason: object) -> DataError:
        return DataError(f"the summary in {file} cannot be used: {reason}; delete the file, or give another folder")


def request_key(summarizer: Summarizer, request: SummaryRequest) -> str:
    """Return the hash of all that a summary depends on; ids of sources are no part of it."""
    parts = [summarizer.identity, request.query, request.max_tokens, request.texts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
