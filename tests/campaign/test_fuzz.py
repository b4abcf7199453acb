"""Selections drawn at random over all selectors, settings and token counters: no budget is exceeded, nothing breaks.

A case that fails is named by its number: `tried(NUMBER, [])` of `tests.campaign.sound` does it again.
"""

import logging
import os

import pytest

from tests.campaign.sound import tried
from tests.effort import CAMPAIGN, FULL

pytestmark = pytest.mark.slow

NUM_CASES, NUM_PARTS = (1_000_000, 400) if CAMPAIGN else (10_000, 20) if FULL else (1_000, 2)
FIRST = int(os.environ.get("CORAG_FIRST_CASE", "0"))
"""Cases that no run has had begin elsewhere."""


@pytest.fixture(autouse=True)
def silent(caplog):
    """Warnings of small budgets and failed summaries are many."""
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_selections_keep_their_promises(part):
    of_part, failures = NUM_CASES // NUM_PARTS, []
    numbers = range(FIRST + part * of_part, FIRST + (part + 1) * of_part)
    num_chosen = sum(tried(number, failures) for number in numbers)
    assert not failures, f"{len(failures)} failures, the first:\n" + "\n".join(failures[:3])
    assert num_chosen > of_part / 2
