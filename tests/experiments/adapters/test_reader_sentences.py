"""Training rows made of sentences: cut and joined as selectors do it, every answer in its place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import InputError
from corag.text.data import DataFolder, Query
from corag.text.documents import Document, passage
from corag.text.tokens import load_tokenizer, model_folder
from corag.text.units import GAP, Unit, assemble, units
from experiments.adapters.reader.config import RowSettings
from experiments.adapters.reader.data import examples, rows
from experiments.adapters.reader.sentences import MAX_BESIDE, MAX_OTHERS, Source, excerpt, occurrences, sentence_sources
from experiments.adapters.reader.train import sentence_cases
from tests.experiments.worlds import write_folder

SPAN, NONE, YES, NO = range(4)
ALL = RowSettings(min_tokens=20, max_tokens=128, unanswerable=1.0, distractor=0.0, sentences=1.0)
BUILT = "Otto Brunner built it."
WORDS = st.sampled_from(["oak", "elm", "Ash", "fir", "yew", "1830", "Dr."])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), min_size=1, max_size=8).map(". ".join)


def source(text, answer="", title="Trees"):
    chunk = passage(Document("d", text, title))
    return Source(chunk, occurrences(chunk.text, [answer]))


def query(question="Which tree?", answers=("oak",)):
    return Query("q", question, answers, ("d",), "train", None, {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    documents = [
        {"id": "mill", "title": "Mill", "text": f"The mill is old. It burned in 1830. {BUILT} It has a wheel."},
        {"id": "lake", "title": "Lake", "text": "The lake is cold. Nobody built it. It has no island."},
        {"id": "oven", "title": "Oven", "text": "The oven is warm. Eva Kern built it. It has a door."},
    ]  # fmt: skip
    queries = [
        {"id": "who", "question": "Who built the mill?", "answers": ["Otto Brunner"], "gold": ["mill"],
         "split": "train"},
        {"id": "is", "question": "Is the mill old?", "answers": ["yes"], "gold": ["mill"], "split": "train"},
        {"id": "both", "question": "When did what Otto built burn?", "answers": ["1830"], "gold": ["mill", "lake"],
         "split": "train"},
    ]  # fmt: skip
    return DataFolder.open(write_folder(tmp_path_factory.mktemp("mills") / "d", documents=documents, queries=queries))


@given(TEXTS, st.text(st.sampled_from("oak elm.1"), min_size=1, max_size=6), st.randoms())
def test_answers_keep_their_words_wherever_they_stand(text, answer, random):
    whole = source(text, answer)
    parts = units(whole.chunk, Unit(1))
    kept = random.sample(parts, random.randint(1, len(parts)))
    short = excerpt(whole, kept)
    said = {whole.text[start:end] for start, end in whole.answers}
    assert all(short.text[start:end] in said for start, end in short.answers)
    assert short.text == assemble(kept)[0]
    # Those that stand in a kept sentence or in the title are all there.
    spans = [(0, parts[0].body), *(part.span for part in kept)]
    held = sum(any(start <= first and last <= end for start, end in spans) for first, last in whole.answers)
    assert len(short.answers) >= held


def test_all_sentences_together_are_the_passage():
    whole = source("One oak. Two. An oak here.", "oak")
    assert excerpt(whole, units(whole.chunk, Unit(1))) == whole
    assert excerpt(whole, []) == whole


def test_an_answer_over_two_sentences_is_whole_or_not_there():
    whole = source("It is by Dr. A. Oak. Elm was second. Fir was third.")
    start, end = whole.text.index("Oak. Elm"), whole.text.index(" was second")
    whole = Source(whole.chunk, ((start, end),))
    first, second, third = units(whole.chunk, Unit(1))
    ((a, b),) = excerpt(whole, [second, first]).answers
    assert excerpt(whole, [second, first]).text[a:b] == "Oak. Elm"
    assert excerpt(whole, [first, third]).answers == excerpt(whole, [second]).answers == ()


@given(TEXTS, st.integers(0, 99), st.booleans())
def test_sources_hold_an_answer_or_none(text, seed, answered):
    gold, others = [source(text, "oak")], [source("A birch. A beech. A pine.", title=f"Other {i}") for i in range(5)]
    random = np.random.default_rng(seed)
    found = sentence_sources(query(), gold, others, random, answered=answered)
    texts = [one.text for one in found]
    if answered:
        assert bool(found[0].answers) == bool(gold[0].answers)
        assert all(found[0].text[a:b].lower() == "oak" for a, b in found[0].answers)
    else:
        assert not any("oak" in one.lower().split() for one in texts)
    assert len(found) <= 1 + MAX_OTHERS
    assert all(len(units(one.chunk, Unit(1))) <= MAX_BESIDE for one in found if one.chunk.id == "Other")


def test_a_title_with_the_answer_is_left_out_where_there_shall_be_none():
    gold = source("It is a tree. It grows.", title="Oak")
    others = [source("A birch. A beech.", title="Birch")]
    found = [sentence_sources(query(), [gold], others, np.random.default_rng(i), answered=False) for i in range(9)]
    assert {one.text.split("\n")[0] for sources in found for one in sources} == {"Birch"}


def test_rows_of_sentences_hold_the_answer_and_marks_of_gaps(folder):
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    made = {query.id: examples(folder, [query], 30) for query in folder.queries}
    with_answer, without = [
        [row for row in rows(made["who"], ALL, (0,)) if row.kind == kind] for kind in (SPAN, NONE)
    ]  # fmt: skip
    assert len(with_answer) == len(without) == 30
    shown = [tokenizer.decode(row.ids.tolist()) for row in with_answer]
    for row in with_answer:
        assert {tokenizer.decode(row.ids[a : b + 1].tolist()) for a, b in row.spans} == {"otto brunner"}
    assert any(GAP.strip() in text for text in shown) and len(set(shown)) > 5
    assert any("lake" in text or "oven" in text for text in shown)
    lacking = [tokenizer.decode(row.ids.tolist()) for row in without]
    assert not any("otto brunner" in text for text in lacking) and any("the mill is old" in text for text in lacking)
    # What yes or no follows from is not known by sentence.
    assert all("it has a wheel" in tokenizer.decode(row.ids.tolist()) for row in rows(made["is"], ALL, (0,))[::2])
    # Every gold passage is there, one without the answer with a sentence of its own.
    for row in rows(made["both"], ALL, (0,)):
        text = tokenizer.decode(row.ids.tolist()).split("[SEP]")[0]
        assert row.kind == NONE or ("lake" in text and [row.ids[a] for a, _ in row.spans])


def test_the_same_seed_gives_the_same_rows_and_no_share_of_sentences_those_of_before(folder):
    learned = examples(folder, folder.queries, 5)
    first, again, other = ([row.ids.tolist() for row in rows(learned, ALL, seed)] for seed in ((0,), (0,), (1,)))
    assert first == again != other
    half = RowSettings(min_tokens=20, max_tokens=128, sentences=0.5)
    assert len(rows(learned, half, (0,))) >= len(learned) * 5


def test_cases_of_sentences_are_the_same_every_time(folder):
    cases = sentence_cases(folder, folder.queries, 3)
    assert cases == sentence_cases(folder, folder.queries, 3) != sentence_cases(folder, folder.queries, 4)
    assert [case.question for case in cases] == ["Who built the mill?", "When did what Otto built burn?"]
    assert all(case.answers[0] in case.context for case in cases)
    lacking = sentence_cases(folder, folder.queries, 3, answered=False)
    assert all(case.answers == () and "Otto Brunner" not in case.context for case in lacking[:1])


@pytest.mark.parametrize("name", ["unanswerable", "distractor", "sentences"])
def test_shares_are_shares(name):
    with pytest.raises(InputError, match=rf"{name} is a share, from 0 to 1, got 1\.5"):
        RowSettings(**{name: 1.5})
