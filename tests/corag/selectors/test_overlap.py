"""Overlapping chunks: what they share is given and paid for once, by every selector, unit and order of the prompt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.documents import Document, citation, places_of
from corag.text.units import LINE_GAP, source_of
from tests.corag.selectors.test_selectors import cheap_selector
from tests.fakes import COUNTERS, WORDS


def cut(document, count, *, title="Valves", max_tokens=26, overlap=12, form="Valve {} of {} opens the tank now."):
    text = " ".join(form.format(number, document) for number in range(count))
    return chunk_document(Document(document, text, title), WORDS, ChunkConfig(max_tokens, overlap))


def offered(chunks, ranks):
    return [Candidate(chunks[row], 1 - place / 100) for place, row in enumerate(ranks)]


POOLS = st.integers(2, 9).flatmap(
    lambda count: st.permutations(range(len(cut("a", count) + cut("b", 4)))).map(
        lambda ranks: offered(cut("a", count) + cut("b", 4), ranks)
    )
)


def no_sentence_twice(selection):
    found = [one for one in selection.text.replace("\n", " ").replace(" … ", " ").split(". ") if "Valve " in one]
    names = [one[one.index("Valve ") :].removesuffix(".") for one in found]
    assert len(set(names)) == len(names), selection.text


@settings(deadline=None, max_examples=60)
@given(
    POOLS,
    st.sampled_from([name for name in corag.SELECTORS.names if name not in ("raptor", "self-route")]),
    st.sampled_from(["passage", "sentence", "window(2)"]),
    st.sampled_from(["value", "ends", "document"]),
    st.sampled_from(COUNTERS),
    st.floats(0.05, 1.2),
)
def test_what_chunks_share_is_given_and_paid_for_once(pool, name, unit, order, counter, share):
    budget = 1 + int(share * counter.count([one.chunk.text for one in pool]).sum())
    settings = {"tokenizer": counter, "unit": unit, "order": order}
    known = corag.SELECTORS.parameters(name)
    selector = cheap_selector(name, **{key: value for key, value in settings.items() if key in known})
    selection = selector.select("Which valve?", pool, budget)
    cost = int(counter.count([selection.text])[0]) if len(selection) else 0
    assert selection.cost_tokens == cost <= budget
    if not selection.spans:
        return  # a text of its own
    # What spans show, those of overlapping chunks, too, the campaign checks.
    no_sentence_twice(selection)


def test_overlapping_chunks_are_one_text_below_one_title():
    first, second = cut("d", 6)[:2]
    assert (first.metadata["end"], second.metadata["start"]) == (99, 66)
    whole = f"Valves\n{' '.join(f'Valve {number} of d opens the tank now.' for number in range(5))}"
    found = corag.selector("top-k", tokenizer=WORDS).select("Which?", offered([first, second], [1, 0]), 41)
    assert found.text == whole and found.cost_tokens == 41
    assert [found.text[slice(*span)] for span in found.spans] == [
        "Valve 0 of d opens the tank now. Valve 1 of d opens the tank now. Valve 2 of d opens the tank now.",
        "Valve 3 of d opens the tank now. Valve 4 of d opens the tank now.",
    ]
    assert found.ids == (first.id, second.id)


def test_savings_are_spent():
    # Each costs 25 words, of which two neighbours share nine, the title included: n of them cost 9 + 16 n.
    pool = offered(cut("d", 20), range(8))
    for count in range(1, 9):
        found = corag.selector("full", tokenizer=WORDS).select("Which?", pool, 9 + 16 * count)
        assert (found.cost_tokens, len(found)) == (9 + 16 * count, count)


GIVEN = {
    "strings": lambda text, source: text,
    "mappings": lambda text, source: {"text": text, "title": "T", "metadata": {"source": source, "page": len(text)}},
    "candidates": lambda text, source: Candidate(Chunk(f"{source} {text}", text, {"file_path": source})),
}


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(2, 8), st.sampled_from(["passage", "sentence"]), st.sampled_from(list(GIVEN)))
def test_texts_that_overlap_are_one_document(data, count, unit, kind):
    starts = [(first, first + data.draw(st.integers(2, 4))) for first in range(count)]
    lines = [f"Valve {number} opens the main tank now." for number in range(count + 4)]
    texts = [" ".join(lines[slice(*start)]) for start in data.draw(st.permutations(starts))]
    given = [GIVEN[kind](text, "a.md") for text in texts]
    last = max(end for _, end in starts)
    texts = [*given, GIVEN[kind]("Other text.", "a.md")]
    selection = corag.select("Which valve?", texts, 999, method="full", unit=unit, tokenizer=WORDS)
    # What is between two that do not overlap is not known.
    parts = selection.text.replace(LINE_GAP, " ").removeprefix("T\n").split("\n\n")
    assert sorted(part.removeprefix("T\n") for part in parts) == ["Other text.", " ".join(lines[:last])]
    assert all("start" not in source_of(chunk).metadata for chunk in selection.chunks)


def test_texts_of_two_sources_do_not_overlap():
    first, second = "It ends with what is common to both of them.", "what is common to both of them. And more."
    for sources, cost in ((("a", "a"), 12), (("a", "b"), 19)):
        texts = [
            {"text": text, "metadata": {"document": None, "source": one}}
            for text, one in zip((first, second), sources, strict=True)
        ]
        assert corag.select("Which?", texts, 99, method="full", tokenizer=WORDS).cost_tokens == cost


def test_places_of_strings():
    one, two = "the first of two long pieces ", "the second of two long pieces "
    assert places_of([one + two, two + one]) == {}  # a circle
    assert places_of([two, one, one + two]) == {2: (2, 0), 0: (2, 29)}
    first, second = "It ends with what is common to both of them.", "what is common to both of them. And more."
    assert places_of([second, first, "what is common"]) == {1: (1, 0), 0: (1, 13)}
    assert places_of([first, "with what is another thing"]) == {}
    # Splitters cut behind signs, and between characters of scripts that write no words apart; and beginnings repeat.
    assert places_of(["Since 7.2 TL04 of the old kernel.", "2 TL04 of the old kernel. And more."]) == {
        1: (0, 8),
        0: (0, 0),
    }
    chinese = "".join(chr(0x6C34 + number) for number in range(60))
    assert places_of([chinese[:40], chinese[10:]]) == {1: (0, 10), 0: (0, 0)}
    assert places_of(["An old one. " + one, one + " A", one + " B"]) == {0: (0, 0), 1: (0, 12)}


def test_places_that_disagree_with_the_texts_are_not_believed():
    place = {"document": "d", "title": "", "start": 0, "end": 12}
    pool = offered([Chunk("x", "One is here.", place), Chunk("y", "Two is here.", place)], [0, 1])
    for unit in ("passage", "sentence"):
        text = corag.selector("full", unit=unit).select("Which?", pool, 100).text
        assert "One is here." in text and "Two is here." in text
    same = {"document": "d", "title": "T"}  # of one document, nobody knows where
    pool = offered([Chunk("x", "T\nOne is. Two is.", same), Chunk("y", "T\nSix is. Ten is.", same)], [0, 1])
    assert corag.selector("full", unit="sentence").select("Which?", pool, 100).text == (
        "T\nOne is. Two is.\n\nT\nSix is. Ten is."
    )


@pytest.mark.parametrize("overlap", [0, 12])
def test_items_of_a_list_that_overlapping_chunks_share(overlap):
    items = "\n".join(f"- open valve {number} by hand" for number in range(9))
    chunks = chunk_document(Document("d", f"Do:\n{items}", "T"), WORDS, ChunkConfig(20, overlap))
    pool = offered(chunks, range(len(chunks))[::-1])
    text = corag.selector("full", unit="sentence", tokenizer=WORDS).select("Which?", pool, 99).text
    assert text.replace(LINE_GAP, "\n") == f"T\nDo:\n{items}"


def test_a_section_that_pages_repeat_is_given_once():
    same = "Limits where packages may come from. Default: all."
    pages = {
        "npm-ci > save": same,
        "npm-install > save": f"{same}\n",
        "npm-ci > audit": same,
        "Config > save": "Short.",
    }
    pool = [
        Candidate(Chunk(title, f"{title}\n{text}", {"title": title, "headings": title.split(" > ")}), 0.9)
        for title, text in pages.items()
    ]
    selection = corag.selector("full").select("What is save?", pool, 1000)
    assert selection.trace.duplicates_dropped == 1
    assert {source_of(one.chunk).id for one in selection.trace.offered} <= {*pages} - {"npm-install > save"}


@pytest.mark.parametrize("headings", [3, "a", {"a": 1}, [], [1, 2], None, [[]]])
def test_headings_of_users_may_be_anything(headings):
    text = {"text": "It is open.", "metadata": {"headings": headings}}
    selection = corag.select("Open?", [text, "It is shut."], 99, method="full")
    assert selection.ids and len(selection.chunks) == 2
    assert citation(selection.chunks[0])


@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_a_text_below_several_titles_is_there_once_below_all_of_them(unit):
    text = "Run it in the folder. It installs what the lock file names."
    pool = offered([Chunk(title, f"{title}\n{text}", {"title": title}) for title in ("npm ci", "npm i")], [0, 1])
    pool += offered([Chunk("c", "npm x\nIt is another one.", {"title": "npm x"})], [0])
    selection = corag.selector("full", unit=unit, tokenizer=WORDS).select("Which?", pool, 99)
    assert selection.text == f"npm ci\nnpm i\n{text}\n\nnpm x\nIt is another one."
    for chunk, (start, end) in zip(selection.chunks, selection.spans, strict=True):
        assert selection.text[start:end].endswith(chunk.text.rpartition("\n")[2])
    if unit == "passage":  # what that saves is spent
        assert len(corag.selector("full", tokenizer=WORDS).select("Which?", pool, 22)) == 3
