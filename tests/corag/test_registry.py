import importlib

import pytest

import corag
from corag import EMBEDDERS, READERS, RERANKERS, SELECTORS
from corag.errors import InputError, MissingExtraError
from corag.optional import require
from corag.registry import Registry

TABLES = [EMBEDDERS, RERANKERS, SELECTORS, READERS]


class Thing:
    def __init__(self, *, size: int = 3) -> None:
        self.size = size


def needy(*, model: str) -> str:
    return model


def broken() -> None:
    raise TypeError("got an unexpected keyword argument deep inside")


@pytest.fixture
def parts() -> Registry:
    return Registry("part", {"one": Thing, "path": f"{__name__}:Thing", "needy": needy, "broken": broken})


def test_parts_are_built_from_classes_and_from_paths(parts):
    assert parts.make("one", size=5).size == 5
    assert parts.make("path").size == 3
    assert parts.names == ("one", "path", "needy", "broken")


@pytest.mark.parametrize("name", ["", "four", "two"])
def test_an_unknown_name_lists_all_names(parts, name):
    with pytest.raises(InputError, match=f"part {name!r} is unknown; the names are one, path, needy, broken"):
        parts.make(name)


def test_an_empty_table_says_so():
    with pytest.raises(InputError, match=r"the names are \(none\)"):
        Registry("part", {}).make("one")


def test_settings_are_checked_against_the_part(parts):
    with pytest.raises(InputError, match=r"part 'one': .*'sise' \(did you mean 'size'\?\); its settings are size=3"):
        parts.make("one", sise=4)
    with pytest.raises(InputError, match=r"part 'needy': missing a required .*'model'; its settings are model"):
        parts.make("needy")
    with pytest.raises(InputError, match=r"its settings are \(none\)"):
        parts.make("broken", size=1)


def test_a_part_names_its_settings(parts):
    assert parts.settings("one") == parts.settings("path") == ("size",)
    assert parts.settings("broken") == ()
    assert set(SELECTORS.settings("reorder")) == {"selector", "by", "tokens", *SELECTORS.settings("top-k")}
    passed_on = {*SELECTORS.settings("naive")} - {"reranker"}
    assert set(SELECTORS.settings("reorder(selector=naive(reranker=bm25))")) == {"selector", "by", "tokens"} | passed_on
    assert set(SELECTORS.settings("reorder(selector=unknown)")) == {"selector", "by", "tokens"}
    with pytest.raises(InputError, match="part 'two' is unknown; the names are one"):
        parts.settings("two")


def test_a_type_error_inside_a_part_stays_one(parts):
    with pytest.raises(TypeError, match="deep inside") as caught:
        parts.make("broken")
    assert not isinstance(caught.value, InputError)


def test_registering(parts):
    parts.register("mine", lambda: 7)
    assert parts.make("mine") == 7
    assert parts.names[-1] == "mine"
    with pytest.raises(InputError, match="part 'mine' exists already"):
        parts.register("mine", lambda: 8)
    assert parts.make("mine") == 7


@pytest.mark.parametrize(
    "path", [path for table in TABLES for path in table.parts.values()], ids=lambda path: str(path)
)
def test_every_shipped_path_leads_to_a_documented_part(path):
    module, _, attribute = path.partition(":")
    assert getattr(importlib.import_module(module), attribute).__doc__


@pytest.mark.parametrize(
    ("make", "table"),
    [(corag.reranker, RERANKERS), (corag.selector, SELECTORS), (corag.reader, READERS)],
    ids=["reranker", "selector", "reader"],
)
def test_the_doors_list_all_names(make, table):
    with pytest.raises(InputError) as caught:
        make("no such part")
    assert all(name in str(caught.value) for name in table.names)


def test_a_missing_extra_names_the_command():
    with pytest.raises(MissingExtraError, match=r"no_such_module .* pip install 'corag\[bge\]'"):
        require("no_such_module", "bge")
    assert issubclass(MissingExtraError, ImportError)
    assert require("json", "bge").dumps([1]) == "[1]"
