"""What all adapters share, with documents of no framework."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.integrations.choosing import KEY
from tests.corag.integrations.worlds import FACTS, QUESTION, Note, Notes, Writes, tokens
from tests.fakes import COUNTERS, TEXTS, HashReranker

TOP = Notes(method="top-k", k=50)
NAMED = [Note(text, f"n{place}") for place, text in enumerate(FACTS)]


def choose(documents, budget_tokens=100, chooser=TOP):
    return chooser.choose(QUESTION, documents, budget_tokens)


def test_documents_come_back_as_they_were_with_a_note():
    before = [Note(text, f"n{place}", meta={"page": place}) for place, text in enumerate(FACTS)]
    chosen, selection = choose(before, 40)
    assert [one.content for one in chosen] == FACTS[:2]
    assert [one.meta["page"] for one in chosen] == [0, 1] and before[0].meta == {"page": 0}
    note = chosen[1].meta[KEY]
    assert note["place"] == 1 and "spans" not in note
    assert note["selection"] == selection == json.loads(json.dumps(selection))
    assert selection["cost_tokens"] == tokens("\n\n".join(FACTS[:2])) <= 40
    assert selection["method"] == "top-k" and selection["trace"]["chunk_tokens"]


def test_chosen_sentences_come_back_as_the_text_of_their_document():
    chooser = Notes(reranker="bm25", unit="sentence", agent="none")
    titled = [Note(text, f"n{place}", meta={"title": f"Title {place}: "}) for place, text in enumerate(FACTS)]
    [first, *_] = choose(titled, 14, chooser)[0]
    assert first.content == "Cher has 2 bridges." and first.meta["title"] == "Title 2: "
    [[start, end]] = first.meta[KEY]["spans"]
    assert FACTS[2][start:end] == first.content


def test_what_documents_share_comes_and_is_counted_once():
    pieces = [Note(" ".join(FACTS[row : row + 2]), f"n{row}", meta={"title": "T: ", "source": "a"}) for row in range(4)]
    for unit in ("passage", "sentence"):
        chosen, selection = choose(pieces[::-1], 500, Notes(method="full", unit=unit))
        text = " ".join(one.content for one in chosen)
        assert [text.count(fact.rpartition(". ")[2]) for fact in FACTS] == [1] * 5
        assert selection["cost_tokens"] == tokens("\n\n".join(f"T: {one.content}" for one in chosen))
        assert [one.content for one in pieces] == [" ".join(FACTS[row : row + 2]) for row in range(4)]


def test_repeated_documents_are_chosen_once_and_ids_that_clash_do_no_harm():
    same, _ = choose([*NAMED[:2], NAMED[0], Note(FACTS[1])])
    assert [one.content for one in same] == FACTS[:2]
    clash, _ = choose([Note(text, "one id") for text in FACTS[:3]])
    assert [one.content for one in clash] == FACTS[:3]


def test_scores_of_any_scale_are_taken_unless_one_is_missing():
    for given_scores, taken in (
        ([-7.5, 31, 2], [-7.5, 31.0, 2.0]),
        ([0.1, None, 0.9], [None] * 3),
    ):
        documents = [Note(text, score=score) for text, score in zip(FACTS, given_scores, strict=False)]
        chosen, selection = choose(documents)
        assert selection["trace"]["chunk_similarities"] == taken
        assert [one.content for one in chosen] == FACTS[:3]
    with pytest.raises(InputError, match="cosine"):
        choose([Note("a", score=31)], chooser=Notes(method="similarity-cutoff", score_kind="cosine"))
    ranked = Notes(method="top-k", score_kind="rank")
    assert choose([Note("a", score=31)], chooser=ranked)[1]["trace"]["chunk_similarities"] == [None]


def test_a_text_of_the_selectors_own_is_one_document_that_names_its_sources():
    [document], _ = choose(NAMED, 30, Notes(method=Writes()))
    assert document.content == Writes.text and document.meta[KEY]["sources"] == ["n0", "n1"]
    # With its frame it costs more than the budget, whatever the selector counted.
    framed, selection = choose(NAMED, 30, Notes(method=Writes(), template="<a b='c' d='e' f='g' h='i'>{text}</a>" * 2))
    assert framed == [] and selection["cost_tokens"] == 0


SEPARATORS = st.sampled_from(["\n\n", "", "\n---\n", "b\n", "☃"])
TEMPLATES = st.sampled_from(["{text}", "{title}\n\n{text}", "[{title}] <{text}>", "{text!r}", "{title}{title}{text} "])


@given(
    texts=st.lists(st.tuples(TEXTS, TEXTS), max_size=4), budget=st.integers(1, 120), separator=SEPARATORS,
    template=TEMPLATES, counter=st.sampled_from(COUNTERS), unit=st.sampled_from(["passage", "sentence"]),
)  # fmt: skip
def test_the_rendered_text_never_costs_more_than_the_budget(texts, budget, separator, template, counter, unit):
    settings = {"reranker": HashReranker(), "search": {"policy": "paper"}, "unit": unit}
    chooser = Notes(tokenizer=counter, settings=settings, separator=separator, template=template)
    documents = [Note(text, meta={"title": title.strip()}) for text, title in texts]
    chosen, selection = choose(documents, budget, chooser)
    if chosen:
        assert tokens(chooser._render(chosen), counter) == selection["cost_tokens"] <= budget


def test_a_counter_of_ones_own_is_not_written_by_a_name_that_nothing_knows():
    own = corag.tokens(str.split)
    assert Notes(tokenizer=own).model_dump()["tokenizer"] is own
    assert Notes(tokenizer=corag.tokens()).model_dump()["tokenizer"] == "minilm"
