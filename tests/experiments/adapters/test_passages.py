"""Calibrating how likely the passages that `ask` shows are right: `corag train reader --calibrate`."""

import json
import shutil

import numpy as np
import pytest

from corag.cli.main import main
from corag.readers.passages import OFFSET, WEIGHTS
from experiments.adapters import passages


def test_the_headlines_of_the_questions_judged_by_hand_are_as_right_as_they_say():
    said = passages.headlines(passages.judged(), np.array(WEIGHTS), OFFSET)
    right = {name: counts["right"] / counts["questions"] for name, counts in said.items()}
    assert right["very likely"] >= 0.8 and right["likely"] >= 0.6
    # Of few questions; on all sets left out it is four in five.
    assert said["not found"]["without an answer"] >= 0.75 * said["not found"]["questions"]
    unanswered = sum(not case.answerable for case in passages.judged())
    assert said["not found"]["without an answer"] >= unanswered / 2


@pytest.mark.slow
def test_calibrating_writes_the_constants_and_how_often_they_are_right(monkeypatch, films, tmp_path, capsys):
    # Each set is judged by what the others teach.
    for name in ("one", "two"):
        shutil.copytree(films / "films", tmp_path / name)
    monkeypatch.setattr(passages, "SETS", {"one": 0.0, "two": 0.0})
    monkeypatch.setattr(passages, "NUM_ANSWERED", 6)
    config = tmp_path / "reader.yaml"
    config.write_text(f"data: {tmp_path}\nsources: [{{data: one}}]\nlogger: none\n")
    out = tmp_path / "out"
    assert main(["train", "reader", "--config", str(config), "--calibrate", "--out", str(out)]) == 0
    file = out / "calibration.json"
    assert capsys.readouterr().out == f"{file.read_text()}constants of corag.readers.passages in {file}\n"
    result = json.loads(file.read_text())
    assert np.shape(result["weights"]) == np.shape(WEIGHTS)
    counted = {
        name: sum(headline["questions"] for headline in headlines.values())
        for name, headlines in result["headlines on the set left out"].items()
    }
    # Six of its own, one of the other set.
    assert (counted.pop("one"), counted.pop("two")) == (7, 7) and sum(counted.values()) == len(passages.judged())
    assert list(out.glob("[!.]*")) == [file], "nothing is trained"
