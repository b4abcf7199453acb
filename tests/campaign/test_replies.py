"""Random calls of the tools of an assistant: no reply costs more tokens than the caller allows."""

import random

import pytest

from tests.corag.app.test_tools import one_call
from tests.effort import CAMPAIGN, FULL

pytestmark = pytest.mark.slow

NUM_CALLS, NUM_PARTS = (1_000_000, 400) if CAMPAIGN else (10_000, 20) if FULL else (100, 1)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_replies_keep_the_budget_of_the_caller(part, figure):
    of_part, answered = NUM_CALLS // NUM_PARTS, 0
    for number in range(part * of_part, (part + 1) * of_part):
        answered += one_call(random.Random(number))
    figure("tools: calls", of_part)
    figure("tools: replies", answered)
    assert answered > of_part / 2
