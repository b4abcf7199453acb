"""Selections of the shipped parts on real questions; a change that is meant renews them, see `golden.py`."""

import json

import pytest

from tests.corag.selectors.golden import FILE, methods, select

QUESTIONS = json.loads(FILE.read_text())["questions"]


@pytest.mark.parametrize("method", methods())
def test_selections_are_those_that_are_recorded(method):
    for question in QUESTIONS:
        for now, before in zip(select(method, question), question["selections"][method], strict=True):
            assert now == before | {"value": pytest.approx(before["value"], abs=1e-3)}, question["question"]


def test_every_recorded_method_is_compared():
    assert all(list(question["selections"]) == methods() for question in QUESTIONS)
