"""Text of others on the way to a screen or a file."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.text.visible import to_json, visible

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\x9b31mb\x7f\x00\x85", "a\\x9b31mb\\x7f\\x00\\x85"),
        ("is \u202e310\u202c deep", "is \\u202e310\\u202c deep"),
        ("half \ud83d", "half \\ud83d"),
        ("of Windows\r\nand over\rwritten", "of Windows\nand over\\rwritten".replace("\\r", "\\x0d")),
        ("é 👩‍👩‍👧 עומק عمق\u200f", "é 👩‍👩‍👧 עומק عمق\u200f"),
    ],
)
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
