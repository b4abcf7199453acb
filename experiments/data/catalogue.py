"""Every data set available by name: what it is, under which licence, where its files are, what converts them.

`catalogue.yaml` has the table; `ir_datasets:NAME` and `beir:NAME` are read by the library of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from corag.errors import DataError, InputError
from corag.optional import require
from corag.registry import nearest
from corag.text.documents import Document
from experiments.data import converters
from experiments.data.converters import Converter
from experiments.data.fetch import EXTRA, Files
from experiments.data.folder import Question

_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set available by name; numbers and sizes are estimates.

    Attributes:
        what: What it holds, in a few words.
        home: Page about it.
        megabytes: Size of the download.
        questions: Converter of a split.
        files: Places of the files of each split, and of other parts such as the corpus; none if `ir_datasets` fetches
            them.
        passages: Converter of a corpus that the questions share, if there is one.
        splits: Its splits; by default every part of `files` is one.
        default_splits: Splits that are fetched if none are named; by default all.
        own_passages: Whether the set has passages at all; else another data folder's corpus is needed.
    """

    name: str
    what: str
    licence: str
    home: str
    num_questions: int = 0
    num_passages: int = 0
    megabytes: int = 0
    questions: Converter
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    passages: Callable[[Files], Iterator[Document]] | None = None
    splits: tuple[str, ...]
    default_splits: Sequence[str] = ()
    own_passages: bool = True


def ir_data_set(name: str, ir_name: str, *, splits: Mapping[str, str] | None = None, **known: Any) -> DataSet:
    """Return any data set of `ir_datasets`, BEIR among them: passages, questions and relevance judgements.

    `splits` has the name in `ir_datasets` of the questions of each split; by default the parts `train`, `dev` and
    `test` if there are some, else its own questions. `known` are fields of the set.
    """
    home = f"https://ir-datasets.com/{ir_name.partition('/')[0]}.html"
    if splits is None:
        registered = list(require("ir_datasets", EXTRA).registry)
        if ir_name not in registered:
            raise InputError(f"ir_datasets has no data set {ir_name!r}; https://ir-datasets.com lists them")
        ends = {part: part.rpartition("/")[2] for part in registered if part.rpartition("/")[0] == ir_name}
        splits = {_SPLITS[end]: part for part, end in ends.items() if end in _SPLITS}
    of_split = splits or {_SPLITS.get(ir_name.rpartition("/")[2], "test"): ir_name}
    about = {"what": "questions and passages with relevance judgements", "licence": f"see {home}", "home": home}
    return DataSet(
        name=name,
        splits=tuple(of_split),
        questions=lambda _, split: _in_ir_datasets(of_split[split], _ir_questions),
        passages=lambda _: _in_ir_datasets(ir_name, _ir_passages),
        **{**about, **known},
    )


def _in_ir_datasets(ir_name: str, read: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Yield what `read` yields of a set of `ir_datasets`, which fetches what it lacks and compares checksums."""
    try:
        yield from read(require("ir_datasets", EXTRA).load(ir_name))
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{ir_name} of ir_datasets cannot be read: {str(error).splitlines()[0]}; run the same command again where "
            "there is a network, or put the files where https://ir-datasets.com says (IR_DATASETS_HOME)"
        ) from error


def _ir_questions(data: Any) -> Iterator[Question]:
    if not data.has_queries():
        raise DataError(f"{data.dataset_id()} of ir_datasets has no questions; name a part of it that has some")
    grades: dict[str, dict[str, int]] = {}
    for judged in data.qrels_iter() if data.has_qrels() else ():
        grades.setdefault(judged.query_id, {})[judged.doc_id] = judged.relevance
    for query in data.queries_iter():
        graded = grades.get(query.query_id, {})
        gold = [name for name, grade in graded.items() if grade > 0]
        extra = {"grades": graded} if set(graded.values()) - {1} else {}
        answers = list(map(str, getattr(query, "answers", None) or ()))
        yield Question(query.query_id, query.default_text(), answers, gold, extra=extra)


def _ir_passages(data: Any) -> Iterator[Document]:
    for document in data.docs_iter():
        text = document.text if hasattr(document, "text") else document.default_text()
        yield Document(document.doc_id, text, getattr(document, "title", "") or "")


def _data_set(name: str, entry: dict[str, Any]) -> DataSet:
    if (ir_name := entry.pop("ir_datasets", None)) is not None:
        return ir_data_set(name, ir_name, **entry)
    given = entry.pop("files")
    files = {part: tuple(of) if isinstance(of, list) else (of,) for part, of in given.items()}
    functions = {kind: getattr(converters, entry.pop(kind)) for kind in ("questions", "passages") if kind in entry}
    return DataSet(name=name, files=files, splits=tuple(entry.pop("splits", files)), **functions, **entry)


_TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
DATA_SETS: dict[str, DataSet] = {name: _data_set(name, entry) for name, entry in _TABLE.items()}
"""The sets by name."""


def find_data_set(name: str) -> DataSet:
    """Return a set of `DATA_SETS`, `ir_datasets:NAME` or `beir:NAME`; an unknown name is an `InputError` with all."""
    if name in DATA_SETS:
        return DATA_SETS[name]
    family, _, rest = name.partition(":")
    if family == "ir_datasets" and rest:
        return ir_data_set(name, rest)
    if family == "beir" and rest:
        return ir_data_set(name, f"beir/{rest}", licence="that of the set; see https://github.com/beir-cellar/beir")
    raise InputError(
        f"unknown data set {name!r}{nearest(name, DATA_SETS)}; the sets are {', '.join(DATA_SETS)}, ir_datasets:NAME "
        "and beir:NAME"
    )
