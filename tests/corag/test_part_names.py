"""`name(key=value, ...)`: what reads, what prints, what is refused; and the tables that build parts from it."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from common.configuration import Configuration, parse, split_parts
from corag import registry
from corag.errors import InputError
from corag.registry import Registry
from corag.rerankers import Bm25
from corag.selectors import Corag, TopK
from tests.fakes import SignEmbedder, essence, sign_agent

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5
)
NAMES = st.from_regex(r"[a-zA-Z0-9./_-]+(:[a-z0-9]+)?", fullmatch=True)
SETTINGS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]*", fullmatch=True), VALUES, max_size=4)


def content(part):
    return part.name, json.dumps(dict(part.settings), default=str)


@given(NAMES, SETTINGS)
def test_what_is_printed_reads_back(name, settings):
    part = Configuration(name, settings)
    again = parse(str(part))
    assert content(again) == content(part)
    assert parse(str(again)) == again and copy.deepcopy(part) == part


@given(st.lists(st.builds(Configuration, NAMES, SETTINGS), max_size=4))
def test_a_list_of_parts_reads_back(parts):
    assert split_parts(", ".join(parts)) == split_parts([*parts]) == parts


@given(st.text() | st.text('ab=,()[]{}"\\ .1-', min_size=6))
def test_any_text_is_read_or_refused(text):
    try:
        part = parse(text)
    except InputError:
        return
    assert parse(str(part)) == part


SPELLINGS = json.loads(Path(__file__).with_name("spellings.json").read_text(encoding="utf-8"))
"""Spelled parts, each with its name and settings."""


@pytest.mark.parametrize(("text", "name", "settings"), SPELLINGS)
def test_reading(text, name, settings):
    part = parse(text)
    assert (part.name, part.settings) == (name, settings)


def test_parts_print_as_they_parse():
    for text in ("top-k(k=3)", "self-route(part=corag(preset=paper, reranker=bm25))"):
        assert str(corag.selector(text)) == text
    assert str(corag.selector("top-k(k=5)")) == "top-k"
    assert str(corag.reader("extractive(sentences=1)")) == "extractive(sentences=1)"
    assert str(TopK(k=3)) == "top-k(k=3)"
    assert str(Corag(reranker=Bm25(b=0.5))) == "corag(reranker=bm25(b=0.5))"
    nested = corag.selector("self-route(part=top-k(k=2))")
    assert str(nested) == "self-route(part=top-k(k=2))" and nested.part.k == 2


def chosen(selector):
    texts = ("Everest is 8,849 metres high.", "It lies in Nepal.", "K2 is in Pakistan.", "Mount Fuji is high.")
    candidates = [corag.Candidate(corag.Chunk(text, text), 0.5) for text in texts]
    selection = selector.select("How high is Everest?", candidates, 20)
    return *essence(selection), selection.trace.details.get("probabilities")


def test_a_part_that_is_copied_or_goes_to_another_process_is_built_again():
    for table in registry.TABLES[:-1]:
        for name in table.local:
            part = table.make(name, **({"reader": "ollama(model=m)"} if name in ("self-consistency", "llm") else {}))
            assert str(copy.deepcopy(part)) == str(part)
    with_agent = Corag(agent=sign_agent(), embedder=SignEmbedder())
    assert chosen(with_agent)[-1]
    parts = [Corag(reranker=Bm25(b=0.5), agent="none"), corag.selector("mmr", tokenizer=corag.tokens("minilm"))]
    for part in (*parts, with_agent):
        assert chosen(pickle.loads(pickle.dumps(part))) == chosen(part)  # noqa: S301 - its own


def test_a_fault_inside_a_part_is_not_taken_for_a_wrong_setting():
    def broken(size: int = 1):
        raise TypeError("deep inside")

    for spelled in ("broken", "broken(size=2)"):
        with pytest.raises(TypeError, match="deep inside"):
            Registry("part", {"broken": broken}, method="run").make(spelled)
