"""`name(key=value, ...)`: what reads, what prints, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.naming import Part, PartName, parse, spelling, split_parts
from corag.registry import Registry
from corag.rerankers import Bm25
from corag.selectors import Corag, TopK

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5
)
NAMES = st.from_regex(r"[a-zA-Z0-9./_-]+(:[a-z0-9]+)?", fullmatch=True)
SETTINGS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]*", fullmatch=True), VALUES, max_size=4)


@given(NAMES, SETTINGS)
def test_what_is_printed_reads_back(name, settings):
    part = PartName(name, settings)
    assert parse(str(part)) == parse({name: settings})
    assert parse(str(parse(str(part)))) == parse(str(part))


@given(st.lists(st.builds(PartName, NAMES, SETTINGS), max_size=4))
def test_a_list_of_parts_reads_back(parts):
    spelled = split_parts([{part.name: part.settings} for part in parts])
    assert split_parts(", ".join(map(str, parts))) == split_parts(", ".join(spelled)) == spelled


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        part = parse(text)
    except InputError as error:
        assert "\n" not in str(error).replace(text, "")
    else:
        assert parse(str(part)) == part


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("car", "car", {}),
        ("car()", "car", {}),
        (" car ( ) ", "car", {}),
        ("top-k(k=3)", "top-k", {"k": 3}),
        ("ollama(model=llama3.1:8b)", "ollama", {"model": "llama3.1:8b"}),
        ("BAAI/bge-reranker-base(device=cuda:1)", "BAAI/bge-reranker-base", {"device": "cuda:1"}),
        ("openai(base_url=http://h:1/v1, model=a/b)", "openai", {"base_url": "http://h:1/v1", "model": "a/b"}),
        ("mmr(k=null,  relevance-weight = 1e-1)", "mmr", {"k": None, "relevance_weight": 0.1}),
        ("similarity-cutoff(minimum=.5)", "similarity-cutoff", {"minimum": 0.5}),
        ("a(x=True, y=False, z=None)", "a", {"x": True, "y": False, "z": None}),
        ("a(x=007, y=1.2.3, z=NaN)", "a", {"x": "007", "y": "1.2.3", "z": "NaN"}),
        ('a(x="1, 2)", y="3")', "a", {"x": "1, 2)", "y": "3"}),
        ('a(x=[1, "b, c"], y={"k": [2]})', "a", {"x": [1, "b, c"], "y": {"k": [2]}}),
        ("a(x=it's 5\" wide)", "a", {"x": "it's 5\" wide"}),
        ("reorder(selector=corag(policy=paper, reranker=b(c=1)), by=order)", "reorder",
         {"selector": "corag(policy=paper, reranker=b(c=1))", "by": "order"}),
        ("edc2(store=a=b)", "edc2", {"store": "a=b"}),
    ],
)  # fmt: skip
def test_reading(text, name, settings):
    assert parse(text) == (name, settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("top-k(3)", "'3' is no setting; write name(key=value, ...), such as top-k(k=3)"),
        ("top-k(k=)", "'k=' is no setting"),
        ("top-k(=3)", "'=3' is no setting"),
        ("top-k(k=3, k=5)", "'k' is set twice"),
        ("top-k(k=3", "is no part with settings"),
        ("(k=3)", "is no part with settings"),
        ("a)b(", "is no part with settings"),
        ("a(b=(1)", "without its partner"),
        ('a(b="x)', "without its partner"),
        ("top-k:k=3", "settings stand in parentheses; write top-k(k=3)"),
        ("ollama:model=llama3.1:8b", "write ollama(model=llama3.1:8b)"),
        ("adaptive-k:strategy=x:tail=0.2", "write adaptive-k(strategy=x, tail=0.2)"),
        (5, "5 is no name of a part"),
        ({"a": {}, "b": {}}, "has 2 names"),
        ({"a": 3}, "the settings of 'a' are 3"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_parts_print_as_they_parse():
    for text in (
        "top-k",
        "top-k(k=3)",
        "corag(reranker=bm25, policy=beam)",
        "reorder(selector=corag(policy=paper, reranker=bm25))",
        "corag-fixed(agent=default)",
        "similarity-cutoff(minimum=0.25)",
    ):
        assert str(corag.selector(text)) == text
    assert str(corag.selector("top-k(k=5)")) == str(corag.selector({"top-k": {"k": 5}})) == "top-k"
    assert str(corag.reranker("minilm-softsim")) == "minilm-softsim"
    assert str(corag.reader("extractive(sentences=1)")) == "extractive(sentences=1)"


def test_parts_built_from_classes_print_their_names():
    assert str(TopK(k=3)) == "top-k(k=3)"
    assert str(Corag(reranker=Bm25(b=0.5), policy="beam")) == "corag(reranker=bm25(b=0.5), policy=beam)"
    assert spelling(TopK()) == "top-k" and spelling("x(y=1)") == "x(y=1)"


class Mine(Part):
    name = "mine"

    def __init__(self, size: int = 3, *, kind: str = "a", inner: object = None) -> None:
        self.size = size


class Foreign:
    name = "foreign"


def test_a_class_without_a_registered_name_prints_its_own():
    assert str(Mine()) == "mine"
    assert str(Mine(4, inner=Foreign())) == "mine(size=4, inner=foreign)"
    assert str(Mine(inner=Mine(5))) == "mine(inner=mine(size=5))"
    assert spelling(Foreign()) == "foreign"


@pytest.fixture
def parts():
    return Registry("part", {"mine": Mine, "other": Foreign}, other="mine", is_model=lambda name: "/" in name)


def test_settings_from_text_and_from_keywords_join(parts):
    assert parts.make("mine(size=4)", kind="b").size == 4
    with pytest.raises(InputError, match="'size' is set twice"):
        parts.make("mine(size=4)", size=5)


def test_offers_are_taken_where_nothing_is_written(parts):
    offered = {"size": 9, "unknown": 1}
    assert parts.offer("mine", offered).size == 9
    assert parts.offer("mine(size=4)", offered).size == 4
    assert isinstance(parts.offer("other", offered), Foreign)
    built = Mine()
    assert parts.offer(built, offered) is built and built.size == 3


def test_a_part_that_is_built_already_is_returned(parts):
    built = Foreign()
    assert parts.make(built) is built
    with pytest.raises(InputError, match="part 'foreign' is built already; build it with size"):
        parts.make(built, size=3)
    for wrong in (object(), 3, b"mine"):
        with pytest.raises(InputError, match="is no part; give one, or its name: mine, other"):
            parts.make(wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine(size=big)", "part 'mine': size is 'big'; it must be a whole number"),
        ("mine(size=true)", "size is True; it must be a whole number"),
        ("mine(kind=3)", "kind is 3; it must be text"),
        (
            "mine(sise=3)",
            r"unexpected keyword argument 'sise' \(did you mean 'size'\?\); its settings are size=3, kind",
        ),
        ("mime", r"part 'mime' is unknown \(did you mean 'mine'\?\); the names are mine, other"),
    ],
)
def test_mistakes_name_the_remedy(parts, text, message):
    with pytest.raises(InputError, match=message):
        parts.make(text)


def test_settings_that_are_parts_may_be_mappings():
    selector = corag.selector({"reorder": {"selector": {"top-k": {"k": 2}}}})
    assert selector.inner.k == 2
    assert str(selector) == "reorder(selector=top-k(k=2))"
