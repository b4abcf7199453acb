"""Fetching files: what is there is not fetched again, what was broken off goes on, and checksums are compared."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from agent.files import replace_file
from corag.cli.console import Report, progress
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


_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\D.*)")


def fetched(remote: Remote, *, quiet: bool = False) -> list[tuple[Path, str]]:
    """Return the files of a remote, with the revision that they are of; fetch what is not in the cache.

    Raises:
        DataError: There is no network, the source is gated, a checksum differs, or the disk is full; the message says
            what to do.
    """
    if isinstance(remote, Hub):
        return _from_hub(remote, quiet)
    return [(from_web(remote.url, remote.md5, quiet=quiet), "")]


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


def from_web(url: str, md5: str = "", *, checked: bool = False, quiet: bool = False) -> Path:
    """Return a file of the web in the cache; a download that was broken off goes on.

    Args:
        url: Its address.
        md5: Its checksum, if it is known.
        checked: Whether the caller compares a checksum. Without one a broken download is begun anew: the file at the
            source may be another one by now.
        quiet: Show no progress.

    Raises:
        DataError: As `fetched`.
    """
    path = _downloads() / f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rpartition('/')[2]}"
    _transfer(url, path, Url(url), _Checksum("md5", md5), resumed=checked or bool(md5), quiet=quiet)
    return path


def _downloads() -> Path:
    return cache_folder() / "downloads"


def _from_hub(remote: Hub, quiet: bool) -> list[tuple[Path, str]]:
    """Return the files of a data set on the hub.

    Its client keeps nothing of a download that was broken off, so it only lists the files and says where they are.
    """
    hub = require("huggingface_hub", EXTRA)
    listing = _listing(remote)
    if listing is None:
        return _from_hub_cache(remote)
    commit, found = listing["commit"], []
    for name, known in sorted(listing["files"].items()):
        if not fnmatch(name, remote.pattern):
            continue
        checksum = _Checksum("sha256", known["sha256"]) if known["sha256"] else _Checksum("git", known["blob"])
        cached = hub.try_to_load_from_cache(remote.repo, name, revision=commit, repo_type="dataset")
        if isinstance(cached, str) and not checksum.difference(Path(cached)):
            found.append(Path(cached))
            continue
        path = _downloads() / "hub" / remote.repo.replace("/", "--") / commit / name
        url = hub.hf_hub_url(remote.repo, name, revision=commit, repo_type="dataset")
        _transfer(url, path, remote, checksum, resumed=True, quiet=quiet, size=known["size"])
        found.append(path)
    if not found:
        raise UnfetchedError(f"{remote.repo} has no file {remote.pattern}", remote)
    return [(file, commit) for file in found]


def _listing(remote: Hub) -> dict[str, Any] | None:
    """Return commit and files of a revision, without a network those of the last time; None if there were none."""
    hub, constants = require("huggingface_hub", EXTRA), require("huggingface_hub.constants", EXTRA)
    revision = remote.revision.replace("/", "-")
    record = _downloads() / "hub" / remote.repo.replace("/", "--") / f"{revision}.json"
    if constants.HF_HUB_OFFLINE or not _has_address(constants.ENDPOINT):
        return json.loads(record.read_text(encoding="utf-8")) if record.exists() else None
    with _reasons(remote, record):
        info = hub.HfApi(endpoint=constants.ENDPOINT).dataset_info(
            remote.repo, revision=remote.revision, files_metadata=True
        )
    files = {
        one.rfilename: {"size": one.size, "sha256": one.lfs.sha256 if one.lfs else "", "blob": one.blob_id or ""}
        for one in info.siblings
    }
    listing = {"commit": info.sha, "files": files}
    replace_file(record, json.dumps(listing))
    return listing


def _from_hub_cache(remote: Hub) -> list[tuple[Path, str]]:
    """Return files that another program has fetched with the hub's client."""
    hub = require("huggingface_hub", EXTRA)
    with _reasons(remote, Path()):
        snapshot = Path(
            hub.snapshot_download(
                remote.repo,
                repo_type="dataset",
                revision=remote.revision,
                allow_patterns=[remote.pattern],
                local_files_only=True,
            )
        )
    names = {one.relative_to(snapshot).as_posix(): one for one in sorted(snapshot.rglob("*")) if one.is_file()}
    files = [path for name, path in names.items() if fnmatch(name, remote.pattern)]
    if not files:
        raise UnfetchedError(f"{remote.pattern} of {remote.repo} cannot be fetched: no network", remote)
    return [(file, snapshot.name) for file in _whole(files, "run the same command again with a network")]


@dataclass(frozen=True, slots=True)
class _Checksum:
    """What a file should be: `kind` is `md5`, `sha256` or `git`, the hash by which Git names content; or empty."""

    kind: str
    value: str

    def difference(self, path: Path) -> str:
        """Return what differs; empty if the file is right or nothing is known of it."""
        if not self.value:
            return ""
        found = _git_blob(path) if self.kind == "git" else digest(path, self.kind)
        name = {"md5": "MD5", "sha256": "SHA-256", "git": "Git hash"}[self.kind]
        return "" if found == self.value else f"its {name} is {found}, expected {self.value}"


def _git_blob(path: Path) -> str:
    found = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            found.update(block)
    return found.hexdigest()


class _Bytes(AbstractContextManager["_Bytes"]):
    """What the hub's client takes for a bar of tqdm."""

    def __init__(self, report: Report, *_: Any, total: int | None = None, initial: int = 0, **__: Any) -> None:
        self._report, self._done, self._total = report, initial, total or 0

    def update(self, number: int) -> None:
        """Tell that so many more bytes have come."""
        self._done += number
        self._report(self._done, self._total)

    def __exit__(self, *_: object) -> None:
        """Leave the bar to its block."""


def _transfer(
    url: str,
    path: Path,
    remote: Remote,
    checksum: _Checksum,
    *,
    resumed: bool,
    quiet: bool,
    size: int | None = None,
) -> None:
    """Fetch a file unless it is there. What is fetched waits as `<name>.part` until it is whole and right."""
    http_get: Any = require("huggingface_hub.file_download", EXTRA).http_get
    errors: Any = require("huggingface_hub.errors", EXTRA)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Of two processes, one fetches and the other waits.
    with require("filelock", EXTRA).FileLock(f"{path}.lock"):
        if path.exists():
            return
        if not resumed or (size is not None and part.exists() and part.stat().st_size > size):
            part.unlink(missing_ok=True)
        headers = require("huggingface_hub.utils", EXTRA).build_hf_headers() if isinstance(remote, Hub) else None
        with (
            _reasons(remote, part),
            part.open("ab") as file,
            progress(f"fetch {remote.pattern}", quiet=quiet, unit="bytes") as report,
        ):
            begun = file.tell()
            try:
                http_get(
                    url,
                    file,
                    resume_size=begun,
                    expected_size=size,
                    headers=headers,
                    displayed_filename=path.name,
                    tqdm_class=partial(_Bytes, report),
                )
            except errors.HfHubHTTPError as error:
                # Nothing is left to fetch: the last run was stopped after the last byte.
                if not begun or error.response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise
        if not part.stat().st_size and size != 0:
            part.unlink()
            raise UnfetchedError(f"{url} cannot be fetched: the server sent an empty file", remote)
        if difference := checksum.difference(part):
            part.unlink()
            raise DataError(
                f"the checksum of {url} differs: {difference}; the download was deleted: run the same command again, "
                "and if it differs again, the file at the source has changed"
            )
        part.replace(path)


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
