"""Benchmarks: each runs at tiny sizes, its table and its file agree, and its figures follow from what was timed."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from corag.errors import DataError, ModelError
from corag.models.minilm import WEIGHTS_FILE, from_folder, minilm_encoder
from corag.registry import RERANKERS
from corag.text.tokens import model_folder
from experiments.bench import BenchConfig, bench, pooled_questions
from tests.experiments.worlds import QUERIES, write_folder

FEW = [query | {"candidates": query["candidates"][:3]} for query in QUERIES]


def rows_of(part, folder, **settings):
    """The rows of a benchmark on short passages."""
    data = write_folder(folder / "data", queries=FEW)
    result = bench(BenchConfig(part, rounds=1, data=str(data), out=str(folder), **settings))
    assert json.loads((folder / f"bench-{part}.json").read_text()) == result
    return result["rows"]


@pytest.mark.slow
def test_search(tmp_path, capsys):
    rows = {row["setting"]: row for row in rows_of("search", tmp_path, small=True)}
    # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
    assert 10 * 40 < rows["paper, 10 iterations"]["orders"] <= 10 * 50
    assert all(row["optima"] <= 2 for row in rows.values() if "optima" in row)
    printed = capsys.readouterr().out
    assert all(name.split(",")[0] in printed for name in rows)


@pytest.mark.slow
def test_selection(tmp_path):
    _, ranked = rows_of("selection", tmp_path, questions=2, methods="naive(reranker=bm25)")
    assert ranked["setting"] == "naive(reranker=bm25)"
    assert 0 < ranked["cold_p50"] <= ranked["cold_p95"] and ranked["per_s"] > 0 and 0 < ranked["of_cosine"] < 1


def test_questions_of_several_folders_take_turns(tmp_path):
    folders = [write_folder(tmp_path / name, queries=FEW) for name in ("a", "b")]
    questions = pooled_questions(",".join(map(str, folders)), 4)
    assert len(questions) == 4 and questions[0][0] == questions[1][0] and len(questions[0][1]) == 3
    without = write_folder(tmp_path / "c", queries=[query | {"candidates": None} for query in FEW])
    with pytest.raises(DataError):
        pooled_questions(str(without), 4)


@pytest.mark.slow
def test_a_machine_without_the_package_is_measured_with_weights_of_a_folder_in_any_precision(tmp_path, monkeypatch):
    folder, tensors = tmp_path / "minilm", load_file(model_folder() / WEIGHTS_FILE)
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(model_folder() / name, folder)
    with pytest.raises(ModelError, match=WEIGHTS_FILE), from_folder(folder):
        pass
    save_file({name: tensor.astype(np.float16) for name, tensor in tensors.items()}, folder / WEIGHTS_FILE)
    exact = minilm_encoder(precision="fp32").vectors(["Varn is an island."])
    with from_folder(folder):
        half = minilm_encoder(precision="fp32").vectors(["Varn is an island."])
    assert 0 < np.abs(exact - half).max() < 1e-3

    def broken(*, backend=None, **where):
        raise ModelError("broken")

    monkeypatch.setitem(RERANKERS.parts, "broken", broken)
    rows = rows_of("gpu", tmp_path, small=True, device="cpu", weights=str(folder))
    assert [row["setting"] for row in rows if "error" in row] == ["broken"]
    exact = [row for row in rows if row.get("precision") == "fp32"]
    assert len(exact) == 11 and all(row["largest_difference"] < 1e-5 and row["per_s"] > 0 for row in exact)
