"""The catalogue, and what the converters make of rows in the form of each source.

`sets.json` has for each set a few rows by part, in the form that its pages and programs describe, and the questions and
passages that they give.
"""

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from corag.errors import InputError
from experiments.data import converters
from experiments.data.catalogue import DATA_SETS, find_data_set
from experiments.data.converters import run_query
from tests.paths import ROOT

BROUGHT = (
    "demo", "halueval_sample", "medquad", "contract_nli", "api_docs", "codebase", "friendsqa", "lihua", "qmsum",
    "fetaqa", "fairytale", "ottqa", "xquad_de", "xquad_zh", "runs/reading/data",
)  # fmt: skip
"""Sets that are not fetched: that of the demo, samples that serve if they are at hand, and what `reading` draws."""
SETS = json.loads(Path(__file__).with_name("sets.json").read_text(encoding="utf-8"))
ROWS = {name: one["rows"] for name, one in SETS.items()}


def converted(name):
    """The questions of the first split that has rows, and the passages by id."""
    data_set, files = DATA_SETS[name], SimpleNamespace(rows=lambda part: iter(ROWS[name][part]))
    # Those of two sets are parts of one file, or made of several.
    divided = name in ("holobench", "amazon-phones")
    split = next(split for split in data_set.splits if ROWS[name].get(split) or divided)
    questions = list(data_set.questions(files, split))
    shared = list(data_set.passages(files)) if data_set.passages else []
    passages = {passage.id: passage for question in questions for passage in question.passages}
    return questions, passages | {passage.id: passage for passage in shared}


def test_every_set_has_rows_here():
    assert {*SETS, "msmarco"} == set(DATA_SETS)


def data_names(value):
    """Yield what a configuration names as `data`, at any depth."""
    if isinstance(value, dict):
        yield from (value["data"],) if isinstance(value.get("data"), str) else ()
        # Figures of a paper, and what is left out, name the values of a study's axes.
        value = [one for name, one in value.items() if name not in ("published", "skip")]
    if isinstance(value, list):
        for one in value:
            yield from data_names(one)


def test_shipped_configurations_use_sets_that_can_be_had():
    files = (ROOT / "experiments" / "configs").rglob("*.yaml")
    names = {name for file in files for name in data_names(yaml.safe_load(file.read_text()))}
    assert "hotpotqa" in names
    assert names <= {*DATA_SETS, *BROUGHT}


@pytest.mark.parametrize("name", ROWS)
def test_a_set_is_described_and_converted_with_its_evidence(name):
    questions, passages = converted(name)
    found = {"questions": [asdict(one) | {"passages": [part.id for part in one.passages]} for one in questions],
             "passages": [[part.id, part.title, part.text] for part in passages.values()]}  # fmt: skip
    assert json.loads(json.dumps(found)) == SETS[name]["converted"]
    for question in questions:
        assert {entry.partition("#")[0] for entry in question.gold} <= set(passages)
    data_set = DATA_SETS[name]
    assert data_set.what and data_set.licence and data_set.home.startswith("https://") and data_set.megabytes > 0
    assert set(data_set.default_splits) <= set(data_set.splits)
    assert data_set.own_passages == bool(passages)


def test_holobench(monkeypatch):
    questions, _ = converted("holobench")
    assert len(questions) == 5 and questions[0].answers == ("Kell\nSable",)
    # With room for one row of the table that matters, the answer is that of this row.
    monkeypatch.setitem(converters.HOLOBENCH_AMOUNTS, "info-5k", 8)
    assert converted("holobench")[0][0].answers == ("Kell",)
    assert run_query("SELECT x FROM nowhere", {"wine": [{"Name": "Kell"}]}) == ""
    assert run_query('SELECT "a""b", None FROM wine', {"wine": [{'a"b': 1, "None": None}]}) == "1, "


def test_names():
    with pytest.raises(InputError):
        find_data_set("ir_datasets:no-such-set")
    assert find_data_set("beir:scifact").splits == ("test", "train")
    assert find_data_set("ir_datasets:msmarco-passage/trec-dl-2019/judged").splits == ("test",)
    assert find_data_set("msmarco").default_splits == ["dev", "test"]
