"""Text of others on the way to a screen or a file."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.text.visible import to_json, visible

ANY_TEXT = st.text(st.characters(exclude_categories=()))


SHOWN = json.loads(Path(__file__).with_name("visible.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "shown"), SHOWN)
def test_control_characters_are_shown_and_letters_stay(text, shown):
    assert visible(text) == shown


@given(ANY_TEXT)
def test_what_is_shown_holds_no_control_character(text):
    shown = visible(text)
    assert {unicodedata.category(one) for one in shown if one not in "\t\n"}.isdisjoint(("Cc", "Cs", "Zl", "Zp"))
    assert visible(shown) == shown
    shown.encode("utf-8")


@given(ANY_TEXT, st.booleans())
def test_json_means_the_same(text, shown):
    written = to_json({text: [text, 1.5, None]}, shown=shown)
    written.encode("utf-8")
    pairs = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    read = json.loads(written)
    assert read == {pairs: [pairs, 1.5, None]}
    assert not shown or visible(written) == written
