"""What a question asks for, and what it lacks."""

import pytest

from corag.text.questions import (
    NAMED,
    PLAIN,
    asks_to_explain,
    defines,
    definition,
    is_yes_no,
    may_concern,
    parts_of,
    refers_back,
    subject,
    understood,
)
from corag.types import Chunk


@pytest.mark.parametrize(
    ("question", "explain", "yes_no"),
    [
        ("Why is the sky blue?", True, False),
        ("How do I start the pump?", True, False),
        ("What does the pump do?", True, False),
        ("What are tuples?", True, False),
        ("How deep is the lake?", False, False),
        ("Who built the mill?", False, False),
        ("Is the lake deep?", False, True),
        ("Isn't it safe?", False, True),
        ("Is it a lake or a river?", False, False),
    ],
)
def test_what_a_question_wants(question, explain, yes_no):
    assert (asks_to_explain(question), is_yes_no(question)) == (explain, yes_no)


@pytest.mark.parametrize(
    ("question", "does"),
    [
        ("What is a tuple?", False),
        ("How deep is it?", True),
        ("And the river?", True),
        ("How do I change that?", True),
        ("Is that file kept?", False),
        ("Why?", True),
        ("", True),
        ("Orchestras of the city", False),
    ],
)
def test_what_refers_back(question, does):
    assert refers_back(question) is does


def test_what_a_follow_up_lacks_is_carried_over():
    assert understood("and how do I change that?", ["What does shred do?"]) == "and how do I change that? (shred)"
    assert understood("Where is it?", ["How deep is Lake Sable?", "Why?"]) == "Where is it? (Lake Sable)"
    asked = ["Who are triagers in Node.js?"]
    assert understood("What can they do?", asked) == "What can they do? (triagers Node.js)"
    assert understood("Where is it?", []) == "Where is it?"
    assert understood("Who built the mill?", ["How deep is Lake Sable?"]) == "Who built the mill?"
    both = "How high is Everest, and where is it?"
    assert understood(both, ["What does shred do?"]) == both
    assert subject("How do I use python3 with it?") == "python3"


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("How high is Everest, and where is it?", ["How high is Everest?", "where is it? (Everest)"]),
        ("What is a tuple? How do I make one?", ["What is a tuple?", "How do I make one? (tuple)"]),
        ("What does the pump and the valve do?", ["What does the pump and the valve do?"]),
        ("Explain where and how it was built", ["Explain where and how it was built"]),
        ("Where is it?", ["Where is it?"]),
        ("Default of retries and of timeout?", ["Default of retries?", "Default of timeout?"]),
        ("What is the port of A and of B in C?", ["What is the port of A in C?", "What is the port of B in C?"]),
        ("What is the difference of form and content?", ["What is the difference of form and content?"]),
    ],
)
def test_the_questions_in_a_question(question, parts):
    assert parts_of(question) == parts


@pytest.mark.parametrize(
    ("question", "sentence", "expected"),
    [
        ("What is a fifo?", "A FIFO special file (a named pipe) is similar to a pipe.", 1),
        ("What is a fifo?", "A fifo (a named pipe) is a special file.", PLAIN),
        ("What does git notes do?", "git-notes - Add or inspect object notes", NAMED),
        ("What's CREATE INDEX?", "CREATE_INDEX - define a new index", NAMED),
        ("What is the fgrep command?", "grep, fgrep, rgrep - print lines that match patterns", NAMED),
        ("What is a fast-forward in git?", "fast-forward\n    It moves a branch.", NAMED),
        ("What is sysctl used for?", "sysctl is used to set parameters.", PLAIN),
        ("What does the nologin command do?", "nologin displays a message.", 1),
        ("What is CLUSTER in PostgreSQL?", "CLUSTER instructs PostgreSQL to cluster the table.", 1),
        ("What is CLUSTER in PostgreSQL?", "When a table is clustered, it is reordered.", 0),
        ("What does LISTEN do in PostgreSQL?", "LISTEN takes effect at transaction commit.", 0),
        ("What does git rerere do?", "Normally, git rerere is run without arguments.", 0),
        ("What is the default of gc.auto?", "gc.auto is a number.", 0),
        ("Is h11 a server?", "h11 is a library.", 0),
    ],
)
def test_what_defines_something_begins_with_it(question, sentence, expected):
    assert defines(question, sentence) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What does git add -f do?", "-f, --force\n    Add them anyway."),
        ("What does the --force option of git add do?", "-f, --force\n    Add them anyway."),
        ("What is the -n option of git add for?", "-n NUMBER, --number=NUMBER\n    Add some."),
        ("What does -F do in git add?", None),
        ("What does git rm -f do?", None),
        ("What is the default of -f in git add?", None),
    ],
)
def test_an_option_is_described_where_a_sentence_begins_with_it(question, expected):
    text = "See -f.\n\n-f, --force\n    Add them anyway.\n\n-n NUMBER, --number=NUMBER\n    Add some."
    chunk = Chunk("git-add.1#9-99", f"git-add(1)\n{text}", {"document": "git-add.1", "title": "git-add(1)"})
    plainness, span = definition(question, chunk)
    assert (plainness, span and chunk.text[slice(*span)]) == ((NAMED, expected) if expected else (0, None))


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("What is PX-1234?", "the px_1234, not the PX-1235", True),
        ("What is PX-1234?", "PX-1235, and PX-12345", False),
        ("What is PX-1234?", "APX-1235 and PX-1235a", True),  # of another form
        ("Is UTF8 used?", "UTF-16 is.", False),
        ("Is it UTF-8 or UTF-16?", "UTF-16.", True),
        ("Who won ww1?", "Who won World War I?", True),
        ("What was in 2014?", "In 2015 nothing.", True),
        ("参加了AS-206的人", "AS-207", False),
    ],
)
def test_what_is_said_of_another_of_a_name_with_digits(question, text, expected):
    assert may_concern(question, [text, "Other."]) == [expected, True]
