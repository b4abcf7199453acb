import json
from math import log

import numpy as np
import pytest

from corag.errors import DataError, InputError
from experiments.evaluation import tes as program
from experiments.evaluation.tes import ADAPTIVE, FIXED, TesConfig, compared, main, tes
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

SETTINGS = {"split": "dev", "pool": "candidates", "fixed": "top-k:k=1,top-k:k=3", "quiet": True, "resamples": 50}


def config_of(data, **settings):
    return TesConfig(str(data), **{**SETTINGS, "adaptive": "car:method=agglomerative,adaptive-k:buffer=0", **settings})


def test_the_lines_by_hand():
    rows = {
        "top 1": np.array([[1, 1.0, 1], [0, 0.5, 1]]),
        "top 3": np.array([[1, 1.0, 3], [1, 1.0, 3]]),
        "cut": np.array([[1, 1.0, 1], [1, 1.0, 2]]),
        "same": np.array([[1, 1.0, 3], [1, 1.0, 3]]),
    }
    one, three, cut, same = compared(rows, ["top 1", "top 3"], ["cut", "same"], resamples=200, seed=0)
    assert one == {
        "method": "top 1", "accuracy": 0.5, "recall": 0.75, "candidates": 1.0,
        "tes": 0.5 / log(2), "recall_tes": 0.75 / log(2),
    }  # fmt: skip
    # 0.7213 and 0.7213 but for rounding: 0.5 / ln 2 is 1 / ln 4, and the first of equals counts.
    assert three["tes"] == pytest.approx(one["tes"])
    assert cut["best_fixed"] in ("top 1", "top 3")
    assert cut["tes"] == pytest.approx(1 / log(2.5))
    assert cut["difference"] == pytest.approx(1 / log(2.5) - 1 / log(4))
    assert cut["low"] <= cut["difference"] <= cut["high"]
    if cut["best_fixed"] == "top 3":
        assert same["low"] == same["high"] == same["difference"] == 0


def test_equal_seeds_give_equal_intervals():
    rng = np.random.default_rng(3)
    rows = {name: np.column_stack([rng.integers(2, size=(9, 2)), rng.integers(1, 9, size=9)]) for name in ("a", "b")}
    first, again, other = (compared(rows, ["a"], ["b"], resamples=40, seed=seed)[1] for seed in (0, 0, 1))
    assert first == again and first != other
    assert {key: first[key] for key in ("tes", "difference")} == {key: other[key] for key in ("tes", "difference")}


def test_questions_with_evidence_are_compared_and_an_interrupted_run_goes_on(tmp_path, small_data, monkeypatch):
    out = tmp_path / "tes.json"
    config = config_of(small_data, out=str(out))
    cut, calls = program._cut, []

    def tired(query, *rest):
        calls.append(query.id)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return cut(query, *rest)

    monkeypatch.setattr(program, "_cut", tired)
    with pytest.raises(KeyboardInterrupt):
        tes(config)
    result = tes(config)
    # Three questions by four methods; the second was cut short and is done again.
    assert len(calls) == 6 + 8
    assert json.loads(out.read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["tes.json"]
    assert (result["queries"], result["queries_without_gold"]) == (3, 1)
    one, three, car, _ = result["methods"]
    assert (one["candidates"], three["candidates"]) == (1.0, 3.0)
    # q6, q7 and q8 name what they ask for.
    assert three["accuracy"] == three["recall"] == 1.0
    assert 1 <= car["candidates"] <= 6 and car["best_fixed"] in ("top-k:k=1", "top-k:k=3")


def test_the_command_line_prints_a_table(small_data, capsys):
    arguments = ["--data", str(small_data), "--split", "dev", "--pool", "candidates", "--resamples", "5"]
    assert main([*arguments, "--fixed", "top-k:k=2", "--adaptive", "car"]) == 0
    printed = capsys.readouterr().out
    assert "3 questions with evidence" in printed and "lead over top-k:k=2" in printed and "car" in printed
    assert main([*arguments, "--fixed", "top-q"]) == 2
    assert "selector 'top-q' is unknown" in capsys.readouterr().out


def test_the_tables_of_the_paper_by_default():
    assert FIXED.split(",") == ["top-k:k=3", "top-k:k=5", "top-k:k=10", "top-k:k=20"]
    assert len(ADAPTIVE.split(",")) == 8 and "car:method=bisecting-kmeans" in ADAPTIVE
    assert TesConfig("data").num_candidates == 40


def test_settings_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(InputError, match="resamples must be at least 1, got 0"):
        TesConfig("data", resamples=0)
    with pytest.raises(InputError, match="limit must be at least 1, got 0"):
        TesConfig("data", limit=0)
    data = write_folder(tmp_path, DOCUMENTS, [QUERIES[8]])
    with pytest.raises(DataError, match=r"none of the 1 questions of .* has gold"):
        tes(config_of(data))
