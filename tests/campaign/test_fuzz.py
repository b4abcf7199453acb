"""Selections drawn at random over all selectors, settings and token counters: no budget is exceeded, nothing breaks.

A case that fails is named by its number: `tried(NUMBER, [])` does it again.
"""

import json
import logging
import math
import os
import random
from dataclasses import replace

import pytest

from corag.budget import Budget
from corag.errors import InputError, ModelError, ScoringError
from corag.text.documents import SEPARATOR
from corag.text.units import UnitChunk, disjoint, source_of
from tests.campaign.draws import drawn_case
from tests.corag.text.tokens.worlds import ChatReader
from tests.effort import CAMPAIGN, FULL
from tests.fakes import essence

pytestmark = pytest.mark.slow

NUM_CASES, NUM_PARTS = (1_000_000, 400) if CAMPAIGN else (10_000, 20) if FULL else (1_000, 2)
FIRST = int(os.environ.get("CORAG_FIRST_CASE", "0"))
"""Cases that no run has had begin elsewhere."""


def sound(case, selection):
    """Raise `AssertionError` where a selection breaks a promise."""
    trace, chunks, count = selection.trace, selection.chunks, case.tokens.count
    assert selection.budget_tokens == case.budget and selection.method == case.selector.name
    cost = int(count([selection.text])[0]) if chunks else 0
    assert selection.cost_tokens == cost <= case.budget, f"{selection.cost_tokens} stated, {cost} counted"
    assert len(set(selection.ids)) == len(chunks), "a chunk stands twice"
    assert math.isfinite(selection.value) and trace.select_s >= 0
    offered = {candidate.chunk.id: candidate.chunk.text for candidate in case.candidates}
    has_own_tree = case.name == "raptor" and case.selector.tree is not None  # whatever the candidates are
    for chunk in () if has_own_tree else chunks:
        assert offered[source_of(chunk).id] == source_of(chunk).text, f"{chunk.id} was not offered"
    if selection.spans:
        assert len(selection.spans) == len(chunks)
        for chunk, (start, end) in zip(chunks, selection.spans, strict=True):
            own = source_of(chunk).text
            own = own[slice(*chunk.span)] if isinstance(chunk, UnitChunk) else own
            shown = selection.text[start:end]
            # Of overlapping chunks, one shows what they share.
            assert shown == own or (shown in own and "document" in chunk.metadata), "a span is not where its chunk is"
    apart = disjoint(chunks) == list(chunks) and not any(isinstance(chunk, UnitChunk) for chunk in chunks)
    if not trace.details.get("pieces") and apart:
        assert selection.text == SEPARATOR.join(chunk.text for chunk in chunks)
    assert len(trace.chunk_tokens) == len(trace.chunk_similarities) == len(chunks)
    assert trace.chunk_values is None or len(trace.chunk_values) == len(chunks)
    assert bool(trace.reason) == (not chunks) or (not chunks and case.name == "none"), "a reason without need, or none"
    assert chunks or (cost, selection.value, selection.text) == (0, 0.0, "")
    assert (trace.tokens_estimated is None) == case.tokens.exact
    json.dumps(trace.to_dict(), allow_nan=False)


def same_again(case, selection, how):
    """Raise `AssertionError` unless the same comes of a selector built anew, and with a reader its prompt fits."""
    if how == 0:
        again = drawn_case(case.number)
        found = again.selector.select(again.query, again.candidates, again.budget)
        assert essence(found) == essence(selection), "not the same again"
        noted, before = (replace(one.trace, select_s=0, result=None) for one in (found, selection))
        assert noted == before or noted.to_dict() == before.to_dict(), "not the same trace again"
    elif how == 1:
        reader = ChatReader(case.tokens)
        try:
            found = Budget(case.budget, reader).select(case.selector, case.query, case.candidates)
        except InputError as error:
            assert "leaves no room" in str(error)
        else:
            prompt = int(case.tokens.count([reader.prompt(case.query, found.text)])[0])
            assert not found.chunks or prompt <= case.budget, f"the prompt costs {prompt}"


def one_line(error):
    """Raise `AssertionError` unless an error is one line that says something."""
    said = str(error)
    assert len(said) > 20 and "\n" not in said and "please report" not in said, f"no clear line: {said!r}"


def tried(number, failures):
    """Draw a case and make its selection; return whether it has chunks. What breaks a promise is a failure."""
    case = None
    try:
        try:
            case = drawn_case(number)
            before = list(case.candidates)
            selection = case.selector.select(case.query, case.candidates, case.budget)
        except (InputError, ModelError, ScoringError) as error:
            one_line(error)
            return False
        assert case.candidates == before, "the candidates were changed"
        sound(case, selection)
        rng = random.Random(f"checks of {number}")
        how = rng.choice((0, 0, 1, 2, 2, 2, 2, 2, 2))
        try:
            same_again(case, selection, how)
        except (ModelError, ScoringError) as error:
            # With less room, too, a broken model is asked for other values.
            if how != 1:
                raise
            one_line(error)
    except Exception as error:  # noqa: BLE001  (whatever comes is a finding)
        failures.append(f"{case or f'case {number}'}: {type(error).__name__}: {error}")
        return False
    return bool(selection.chunks)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_selections_keep_their_promises(part, caplog):
    caplog.set_level(logging.ERROR)  # warnings of small budgets and failed summaries are many
    of_part, failures = NUM_CASES // NUM_PARTS, []
    numbers = range(FIRST + part * of_part, FIRST + (part + 1) * of_part)
    num_chosen = sum(tried(number, failures) for number in numbers)
    assert not failures, f"{len(failures)} failures, the first:\n" + "\n".join(failures[:3])
    assert num_chosen > of_part / 2
