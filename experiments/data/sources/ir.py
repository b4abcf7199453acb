"""Any data set of `ir_datasets`, BEIR among them: passages, questions and relevance judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from corag.errors import DataError, InputError
from corag.optional import require
from corag.text.documents import Document
from experiments.data.sources.fetch import EXTRA
from experiments.data.sources.files import Files
from experiments.data.sources.source import Inputs, Question, Source, distinct

_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}


def ir_source(name: str, ir_name: str, *, splits: dict[str, str] | None = None, **known: Any) -> Source:
    """Return the source for a data set of `ir_datasets`.

    Args:
        name: Name of the source.
        ir_name: Its name in `ir_datasets`, which has the passages.
        splits: Name in `ir_datasets` of the questions of each split; by default the parts `train`, `dev` and `test`
            where there are some, else its own questions.
        known: Fields of the source.
    """
    if splits is None:
        splits = _splits(ir_name)
    defaults = {
        "what": "questions and passages with relevance judgements",
        "licence": f"see https://ir-datasets.com/{ir_name.partition('/')[0]}.html",
        "home": f"https://ir-datasets.com/{ir_name.partition('/')[0]}.html",
        "num_questions": 0,
        "num_passages": 0,
        "megabytes": 0,
    }

    def questions(inputs: Inputs, split: str) -> Iterator[Question]:
        return _questions(splits[split], inputs)

    def passages(inputs: Inputs) -> Iterator[Document]:
        return _passages(ir_name, inputs)

    return Source(
        name=name, splits=tuple(splits), parts={}, questions=questions, passages=passages, **{**defaults, **known}
    )


def _splits(ir_name: str) -> dict[str, str]:
    registered = require("ir_datasets", EXTRA).registry
    names = [one for one in registered if one.rpartition("/")[0] == ir_name and one.rpartition("/")[2] in _SPLITS]
    if ir_name not in list(registered):
        raise InputError(f"ir_datasets has no data set {ir_name!r}; https://ir-datasets.com lists them")
    splits = {_SPLITS[one.rpartition("/")[2]]: one for one in names}
    own = _SPLITS.get(ir_name.rpartition("/")[2], "test")
    return splits or {own: ir_name}


def _questions(ir_name: str, inputs: Inputs) -> Iterator[Question]:
    with _opened(ir_name, inputs) as data:
        if not data.has_queries():
            raise DataError(f"{ir_name} of ir_datasets has no questions; name a part of it that has some")
        grades: dict[str, dict[str, int]] = {}
        if data.has_qrels():
            for judged in data.qrels_iter():
                grades.setdefault(judged.query_id, {})[judged.doc_id] = judged.relevance
        for query in data.queries_iter():
            graded = grades.get(query.query_id, {})
            answers = getattr(query, "answers", None) or ()
            yield Question(
                query.query_id,
                query.default_text(),
                distinct(*map(str, answers)),
                tuple(name for name, grade in graded.items() if grade > 0),
                extra={"grades": graded} if set(graded.values()) - {1} else {},
            )


def _passages(ir_name: str, inputs: Inputs) -> Iterator[Document]:
    with _opened(ir_name, inputs) as data:
        for document in data.docs_iter():
            title = getattr(document, "title", "") or ""
            text = document.text if hasattr(document, "text") else document.default_text()
            yield Document(document.doc_id, text, title)


@contextmanager
def _opened(ir_name: str, inputs: Inputs) -> Iterator[Any]:
    """Yield a data set of `ir_datasets` whose files are fetched like those of all sources.

    Left to itself, it starts a download that was broken off anew. It compares the checksums.
    """
    ir_datasets: Any = require("ir_datasets", EXTRA)
    download: Any = require("ir_datasets.util.download", EXTRA)
    files = cast(Files, inputs)

    @contextmanager
    def stream(self: Any) -> Iterator[IO[bytes]]:
        with files.web_file(self.url).open("rb") as file:
            yield file

    original: Callable[..., Any] = download.RequestsDownload.stream
    download.RequestsDownload.stream = stream
    try:
        yield ir_datasets.load(ir_name)
    except (OSError, RuntimeError) as error:
        # Where a file has several addresses, the second argument lists what went wrong at each.
        several = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], list) else [(None, error)]
        for _, reason in several:
            if isinstance(reason, require("ir_datasets.util", EXTRA).HashVerificationError):
                raise _differs(ir_name, files, reason) from error
        for _, reason in several:
            if isinstance(reason, DataError):
                raise reason from error
        raise
    finally:
        download.RequestsDownload.stream = original


def _differs(ir_name: str, files: Files, reason: Exception) -> DataError:
    if files.folder is not None:
        return DataError(f"a file of {ir_name} in {files.folder} differs from the source: {reason}; bring it again")
    for path in files.used:
        path.unlink(missing_ok=True)
    return DataError(
        f"the checksum of a file of {ir_name} differs: {reason}; the download was deleted: run the same command again"
    )
