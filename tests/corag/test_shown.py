"""What is shown of an answer: headline, label, passages with what tells the answer, and citations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.models.minilm import minilm_encoder
from corag.readers.chat import OllamaReader
from corag.readers.passages import Passage, signals
from corag.reply import Reply
from corag.shown import Reading, label, one_text, shown
from corag.text.documents import Document, passage
from corag.text.units import GAP, assemble, units
from corag.types import Answer, Chunk, Selection, Trace
from tests.chat_server import ChatServer
from tests.chat_server import Reply as Sent
from tests.corag.test_ask import COUNTS

LIST = Chunk(
    "guide#0-99",
    "Pump\nBefore you start, close\nthe valve. Then:\n\n- turn the handle;\n- wait until  the\tlight is green.\n\n"
    "```\npump  --start\n```",
    {"document": "guide", "title": "Pump", "start": 0, "end": 99},
)
CHOSEN_LIST = [units(LIST, 1)[index] for index in (0, 1)]


def selection_of(*chunks, reason=None):
    text, spans = assemble(chunks)
    return Selection(tuple(chunks), text, 9, 64, 0.5, "some", Trace(reason=reason), tuple(spans))


def span(text, source=LIST):
    start = source.text.index(text)
    return start, start + len(text)


def judged(*probabilities, words="", question="How do I start the pump?"):
    """Return what is shown of the answer to a question, its first passage judged so for each of its parts."""
    chosen = selection_of(*CHOSEN_LIST)
    read = [
        Reading(question, Answer("x"), (Passage(LIST, one, (span("turn the handle"),), words),))
        for one in probabilities
    ]
    return shown(Answer("x"), chosen, read)


def test_one_probability_decides_headline_and_label():
    likely, not_found = "answer (likely)", "not found"
    headlines = {0.85: "answer (very likely)", 0.84: likely, 0.6: likely, 0.59: "closest passages", 0.05: not_found}
    for probability, headline in headlines.items():
        found = judged(probability)
        assert (found.headline, found.label, found.probability) == (headline, label(probability), probability)
        assert found.found is headline.startswith("answer") and bool(found.passages) is (headline != not_found)


def test_a_passage_is_whole_and_what_tells_the_answer_is_marked():
    [there] = judged(0.9).passages
    assert there.text == (
        "Before you start, close the valve. Then:\n- turn the handle;\n- wait until the light is green.\n"
        "```\npump  --start\n```"
    )
    assert [text for text, marked in there.pieces if marked] == ["turn the handle"]
    assert (there.marker, there.citation) == ("[1]", "guide: Pump")
    # Of the two chosen sentences, the one that tells it, or else follows.
    assert there.chunk == CHOSEN_LIST[1].id


def test_of_a_long_passage_whole_sentences_are_shown():
    source = Chunk("a", f"Pump\n{'It hums. ' * 99}It is loud. Is it safe? Yes.", {"document": "a", "title": "Pump"})
    told = (span("loud", source), span("safe", source))
    [found] = shown(
        Answer("x"), selection_of(source), [Reading("?", Answer("x"), (Passage(source, 0.9, told),))]
    ).passages
    assert found.text == "It is loud. Is it safe?"
    assert [text for text, marked in found.pieces if marked] == ["loud", "safe"]


def test_an_answer_in_the_title_shows_the_passage():
    source = Chunk("a", "Oil pump\nIt has to be oiled.", {"document": "a", "title": "Oil pump"})
    read = [Reading("?", Answer("Oil"), (Passage(source, 0.9, ((0, 3),)),))]
    [found] = shown(Answer("Oil"), selection_of(source), read).passages
    assert (found.text, found.marked) == ("It has to be oiled.", ())
    answer = Answer("Oil", 0.9, spans=((0, 3),))
    assert signals("Which pump?", answer, selection_of(source), minilm_encoder()).spans == [(0, 3)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("-f, --force\n    Do it\nanyway. Always.", "-f, --force\n    Do it anyway. Always."),
        ("  -a, --all\n          shows\n          dots\n\n  -b\n          no", "-a, --all\n    shows dots\n-b\n    no"),
        ("Options:\n  -h, --help  helps\n  --all  all", "Options:\n-h, --help helps\n--all all"),
        ("you\n      could turn it", "you could turn it"),
        ("- turn\n  it\n- wait", "- turn it\n- wait"),
        ("Limits:\n\n| Land | Hotel |\n| --- | --- |\n| NO | 190 |", "Limits:\n| Land | Hotel |\n| NO | 190 |"),
    ],
)
def test_what_keeps_a_line_of_its_own(written, expected):
    text, [mark] = one_text(Chunk("a", written), (0, len(written)), [(0, len(written))])
    assert (text, mark) == (expected, (0, len(expected)))


@given(st.integers(5, 120), st.integers(0, 60))
def test_marks_hold_the_characters_of_the_passage(start, length):
    end = min(start + length, len(LIST.text))
    text, marked = one_text(LIST, (0, len(LIST.text)), [(min(start, end), end)])
    said = "".join(text[slice(*one)] for one in marked)
    assert "".join(said.split()) == "".join(LIST.text[max(start, LIST.text.index("Before")) : end].split())


def test_of_two_questions_the_missing_one_is_named():
    found = judged(0.9, 0.3)
    assert (found.headline, len(found.missing), len(found.passages)) == ("answer (very likely)", 1, 1)
    assert judged(0.9, 0.7).headline == "answer (likely)" and not judged(0.9, 0.7).missing
    assert judged(0.3, 0.2).headline == "closest passages" and len(judged(0.3, 0.2).missing) == 2


def test_a_selection_names_the_question_that_it_does_not_answer():
    question = "Default of retries and of timeout in pump?"
    notes = ["The default of retries in pump is 3.", "Bananas are yellow."]
    assert corag.select(question, notes).trace.missing == ("Default of timeout in pump?",)
    assert corag.select(question, [*notes, "The default of timeout in pump is 10."]).trace.missing == ()
    assert corag.select("Default of retries in pump?", notes).trace.missing is None
    notes = ["Mount Everest is 8,849 metres high.", "It lies on the border of Nepal and China."]
    assert corag.select("How high is Everest, and where is it?", notes).trace.missing == ()


def test_what_is_said_of_another_model_is_no_answer():
    models = ["PX-1234", "PX-1243", "PX-1324", "PX-1342", "PX-1423", "PX-1432"]
    sheets = [f"The {name} is a pump of bronze. It delivers {70 + row} litres." for row, name in enumerate(models)]
    asked = [corag.ask(f"How many litres does the {name} deliver?", sheets) for name in [*models, "PX-1235"]]
    assert [reply.shown.passages[0].text[4:11] for reply in asked[:-1]] == models
    assert asked[0].found and not asked[-1].found
    by = {"FX-16": "Miller Ltd", "FX-20": "Brown and Sons", "FX-24": "Nordic Service"}
    text = "\n".join(f"The {name} is serviced by {whom}." for name, whom in by.items())
    [passage] = corag.ask("Who services the FX-20?", [text]).shown.passages
    assert [passage.text[slice(*span)] for span in passage.marked] == ["The FX-20 is serviced by Brown and Sons."]


def test_a_reply_has_one_confidence():
    reply = corag.ask("How deep is Lake Sable?", ["Lake Sable is 310 metres deep."], budget_tokens=64)
    assert reply.answer.confidence == reply.shown.probability == reply.to_dict()["confidence"]


def test_what_is_not_found_has_its_reason():
    empty = shown(Answer(""), selection_of(reason="no chunk passed the filter"))
    assert (empty.headline, empty.reason) == ("not found", "no chunk passed the filter")
    unanswered = shown(Answer(""), selection_of(LIST))
    assert unanswered.headline == "not found" and "answers" in unanswered.reason and not unanswered.found

    quoted = shown(Answer("handle", 0.9, (span("handle"),)), selection_of(LIST))
    assert (quoted.headline, quoted.label, quoted.citations) == ("closest passages", None, {"[1]": LIST.id})
    written = shown(Answer("Turn the handle.", 0.9, chunk=1), selection_of(LIST))
    assert (written.headline, written.text, written.label) == ("answer", "Turn the handle.", None)


def test_the_shipped_reader_answers_both_halves_and_quotes_what_answers_yes_or_no():
    notes = [
        "Mount Everest is 8,849 metres high.",
        "Everest lies on the border of Nepal and China.",
        "Bananas are yellow.",
    ]
    reply = corag.ask("How high is Everest, and where is it?", notes, budget_tokens=64)
    assert [one.question for one in reply.read] == ["How high is Everest?", "where is it? (Everest)"]
    assert {one.text for one in reply.shown.passages} == set(notes[:2]) and not reply.shown.missing
    reply = corag.ask("Is Everest on the border of China?", notes, budget_tokens=64)
    assert reply.shown.text == "" and reply.shown.passages[0].text == notes[1]
    faq = ["Q: Are bananas blue?\n\nA: No. They are yellow.", *notes]
    reply = corag.ask("Are bananas blue?", faq, budget_tokens=64)
    assert reply.shown.text == "" and len(reply.shown.passages[0].marked) == 2
    # "Yes" and "no" are never read off a negation that says something else.
    strips = ["-P, --absolute-names\n    Don't strip leading slashes from file names.", *notes]
    assert corag.ask("Does tar strip leading slashes from names?", strips, budget_tokens=64).shown.text == ""


def test_what_something_does_is_answered_by_its_definition():
    title = {"document": "tee.1", "title": "tee(1) > NAME"}
    texts = [
        "What tee does not do: tee does nothing else that tee may do.",
        Chunk("tee.1#0-9", "tee(1) > NAME\ntee - copy standard input to files", title),
        "Does tee do what you want? What does it do for you?",
    ]
    reply = corag.ask("What does tee do?", texts, budget_tokens=64)
    assert "tee.1#0-9" in reply.selection.ids
    [definition] = reply.shown.passages
    assert (definition.text, reply.shown.headline) == ("tee - copy standard input to files", "answer (likely)")


def test_boilerplate_answers_only_questions_about_it():
    notice = "Copyright \xa9 2022 The Pump Makers. Pump is licensed under the MIT License."
    place = {"title": "pump(1) > AUTHORS", "headings": ["pump(1)", "AUTHORS"]}
    authors = Chunk("a", "pump(1) > AUTHORS\nOtto Brunner.", place)
    texts = [notice, "Part of the pump(1) suite", authors]
    assert corag.ask("How is the pump started?", texts, budget_tokens=64).shown.headline == "not found"
    reply = corag.ask("How is the pump started?", [*texts, "To start the pump, turn the handle."], budget_tokens=64)
    assert [passage.text for passage in reply.shown.passages] == ["To start the pump, turn the handle."]
    [found] = corag.ask("Under which licence is pump?", [notice], budget_tokens=64).shown.passages
    assert "MIT" in found.text
    film = "Written by Otto Brunner, the film was shot in Vienna."
    assert film in corag.ask("Where was the film shot?", [notice, film], budget_tokens=64).selection.text


QUESTION = "Who built the mill?"
MILL = Document(
    "mill",
    "The mill stands in Aldorf. It burned in 1830. Otto Brunner built it in 1790.\n\nToday it is a museum.",
    "Mill",
)
LAKE = Document("lake", "The lake is cold. Nobody swims there.", "Lake")
CHOSEN = [units(passage(LAKE), 1)[0], *(units(passage(MILL), 1)[place] for place in (0, 2, 3))]
TEXT = (
    f"Lake\nThe lake is cold.\n\nMill\nThe mill stands in Aldorf.{GAP}Otto Brunner built it in 1790."
    "\n\nToday it is a museum."
)


def test_a_document_has_one_marker_however_many_of_its_sentences_were_chosen():
    documents = [{"id": one.id, "title": one.title, "text": one.text.replace("\n\n", " ")} for one in (MILL, LAKE)]
    with ChatServer(Sent("Otto Brunner [1].")) as server:
        reader = OllamaReader(host=server.host, prompt="cited")
        selector = corag.selector("full", unit="sentence")
        reply = corag.ask(QUESTION, documents, method=selector, reader=reader, budget_tokens=2000)
        sent = server.chats[0]["messages"][1]["content"]
    assert len(reply.selection) == 6
    assert "[1] Mill\nThe mill stands in Aldorf. It burned" in sent and "[2] Lake\nThe lake is cold. Nobody" in sent
    assert "[3]" not in sent
    assert reply.shown.citations == {"[1]": "mill#46-76"}
    assert MILL.text[46:76] == "Otto Brunner built it in 1790."
    said = json.loads(json.dumps(reply.to_dict()))["chunks"]
    assert [chunk["marker"] for chunk in said] == ["[1]"] * 4 + ["[2]"] * 2


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        (Answer("Otto Brunner [2]", chunk=1, citations=(1,)), {"[2]": 2}),
        (Answer("In Aldorf, by the cold lake [2][1]", chunk=1, citations=(1, 0)), {"[2]": 1, "[1]": 0}),
        (Answer("It is shown [3]", chunk=2, citations=(2,)), {"[3]": 3}),
        (Answer("Someone [2]", chunk=1, citations=(1,)), {"[2]": 1}),
        (Answer("Otto Brunner", chunk=1), {"[2]": 2}),  # no marker: the part that its words are from
        (Answer("1790", spans=(tuple(TEXT.index("1790") + i for i in (0, 4)),), chunk=1), {"[2]": 2}),
    ],
)
def test_citations_lead_to_the_sentence_that_says_it(answer, cited):
    text, spans = assemble(CHOSEN)
    assert text == TEXT
    selection = Selection(tuple(CHOSEN), text, 30, 64, 0.5, "some", spans=tuple(spans))
    reply = Reply(QUESTION, answer, selection, {}, COUNTS)
    assert reply.shown.citations == {marker: CHOSEN[place].id for marker, place in cited.items()}
