"""Fetching files: what is there is not fetched again, what was broken off goes on, and checksums are compared."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from corag.errors import DataError
from corag.models.engine.openvino import cache_folder
from corag.optional import require
from experiments.data.sources.source import Hub, Remote, Url

EXTRA = "data"


class UnfetchedError(DataError):
    """A file can neither be fetched nor is it in the folder of files brought by hand.

    Attributes:
        files: Name and address of what to bring.
    """

    def __init__(self, problem: str, remote: Remote) -> None:
        super().__init__(f"{problem}; bring {remote.pattern} from {remote.address}")
        self.problem, self.files = problem, [(remote.pattern, remote.address)]


_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\D.*)")


def fetched(remote: Remote) -> list[tuple[Path, str]]:
    """Return the files of a remote, with the revision that they are of; fetch what is not in the cache.

    Raises:
        DataError: There is no network, the source is gated, a checksum differs, or the disk is full; the message says
            what to do.
    """
    return _from_hub(remote) if isinstance(remote, Hub) else [(from_web(remote.url, remote.md5), "")]


def brought(remote: Remote, folder: Path) -> list[Path]:
    """Return the files of a remote that a person has put into a folder, as they are named at the source.

    Raises:
        DataError: They are not there, or a checksum differs; the message says which files to bring, and from where.
    """
    files = sorted(folder.rglob(remote.pattern))
    # Files may lie flat, where their names alone tell which they are.
    if not files and not (name := remote.pattern.rpartition("/")[2]).startswith("*"):
        files = sorted(folder.rglob(name))
    if not files:
        raise UnfetchedError(f"{folder} has no file {remote.pattern}", remote)
    if isinstance(remote, Url) and remote.md5 and (found := digest(files[0], "md5")) != remote.md5:
        raise DataError(
            f"the checksum of {files[0]} differs: its MD5 is {found}, that of the source is {remote.md5}; bring it "
            f"again from {remote.url}"
        )
    return _whole(files, f"bring the others from {remote.address}")


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def from_web(url: str, md5: str = "") -> Path:
    """Return a file of the web in the cache; a download that was broken off goes on.

    Raises:
        DataError: As `fetched`.
    """
    http_get = require("huggingface_hub.file_download", EXTRA).http_get
    name = f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rpartition('/')[2]}"
    path = cache_folder() / "downloads" / name
    part = path.with_name(f"{name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of two processes, one fetches and the other waits.
    with require("filelock", EXTRA).FileLock(f"{path}.lock"):
        if path.exists():
            return path
        with _reasons(Url(url), part), part.open("ab") as file:
            http_get(url, file, resume_size=file.tell(), displayed_filename=name)
        if md5 and (found := digest(part, "md5")) != md5:
            part.unlink()
            raise DataError(
                f"the checksum of {url} differs: its MD5 is {found}, expected {md5}; the download was deleted: run the "
                "same command again, and if it differs again, the file at the source has changed"
            )
        part.replace(path)
    return path


def _from_hub(remote: Hub) -> list[tuple[Path, str]]:
    hub, constants = require("huggingface_hub", EXTRA), require("huggingface_hub.constants", EXTRA)
    with _reasons(remote, Path(constants.HF_HUB_CACHE)):
        snapshot = Path(
            hub.snapshot_download(
                remote.repo,
                repo_type="dataset",
                revision=remote.revision,
                allow_patterns=[remote.pattern],
                # What is in the hub's cache needs no network.
                local_files_only=not _has_address(constants.ENDPOINT),
            )
        )
    files = [
        one for one in sorted(snapshot.rglob("*")) if fnmatch(one.relative_to(snapshot).as_posix(), remote.pattern)
    ]
    if not files:
        raise UnfetchedError(f"{remote.repo} has no file {remote.pattern}, or it is not in the cache", remote)
    for file in files:
        _check_blob(file)
    return [(file, snapshot.name) for file in _whole(files, "run the same command again with a network")]


def _check_blob(file: Path) -> None:
    """Compare a file of the hub's cache with its SHA-256, by which the hub names large files."""
    blob = Path(os.path.realpath(file))
    if _SHA256.fullmatch(blob.name) and (found := digest(blob)) != blob.name:
        blob.unlink()
        file.unlink(missing_ok=True)
        raise DataError(
            f"the checksum of {file.name} differs: its SHA-256 is {found}, expected {blob.name}; the file was deleted: "
            "run the same command again"
        )


def _whole(files: list[Path], remedy: str) -> list[Path]:
    """Raise `DataError` where one of several shards, which tell how many there are, is missing."""
    names = {file.name for file in files}
    for match in filter(None, map(_SHARD.fullmatch, names)):
        for number in range(int(match["count"])):
            shard = f"{match['stem']}-{number:05}-of-{match['count']}{match['rest']}"
            # A pattern such as *-00000-of-00007.parquet asks for one alone.
            if shard not in names and len(names) > 1:
                raise DataError(f"{files[0].parent} lacks {shard}; {remedy}")
    return files


@contextmanager
def _reasons(remote: Remote, place: Path) -> Iterator[None]:
    """Turn what can go wrong in a download into a `DataError` with a remedy."""
    errors: Any = require("huggingface_hub.errors", EXTRA)
    logs: Any = require("huggingface_hub.utils.logging", EXTRA)
    what = f"{remote.repo} ({remote.pattern})" if isinstance(remote, Hub) else remote.url
    verbosity = logs.get_verbosity()
    try:
        # It would tell each of its attempts; what counts is in the error.
        logs.set_verbosity_error()
        if isinstance(remote, Url) and not _has_address(remote.url):
            raise UnfetchedError(f"{what} cannot be fetched: no network, or the server is unknown", remote)
        yield
    except errors.GatedRepoError as error:
        raise DataError(
            f"{what} is only for users who accept its terms: accept them at {remote.address}, log in with "
            "`hf auth login`, and run the same command again"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise UnfetchedError(f"{what} was moved or removed, or is private", remote) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise UnfetchedError(f"{what} cannot be fetched: no network, or HF_HUB_OFFLINE is set", remote) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"the disk is full while fetching {what} to {place}; what was fetched is kept: free some space and run "
                "the same command again, it goes on from there"
            ) from error
        raise UnfetchedError(f"{what} cannot be fetched: {_first_line(error)}", remote) from error
    except Exception as error:
        # The HTTP client has error classes of its own.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2", "requests"):
            raise
        raise UnfetchedError(f"{what} cannot be fetched: {_first_line(error)}", remote) from error
    finally:
        logs.set_verbosity(verbosity)


def _has_address(url: str) -> bool:
    """Return whether the server of an address can be looked up; clients would try again for half a minute."""
    host = urlsplit(url).hostname
    # A proxy looks names up itself.
    if host is None or getproxies():
        return True
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
