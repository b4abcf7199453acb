"""How much of a label is noise, worked out by hand."""

from experiments.agents.reader_labels import noise
from tests.experiments.worlds import labels_of

FIRST = {"q1": [0.0, 0.0, 1.0, 0.0], "q2": [1.0, 1.0, 1.0, 1.0], "q3": [0.5, 0.0, 0.0, 0.0], "q4": [0.0, 0.0, 0.8, 0.0]}


def test_labels_that_are_the_same_both_times_have_no_noise_and_those_that_differ_have(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = labels_of(tmp_path / "first", FIRST)
    lines = noise(first, first)
    assert "noise in the variance within a question: 0%" in lines and "another configuration is best: 0%" in lines
    # The reader now answers q3 from the other text alone, and q5 was not asked before.
    second = labels_of(tmp_path / "second", FIRST | {"q3": [0.0, 0.0, 0.5, 0.0], "q5": [1.0] * 4})
    lines = noise(first, second)
    assert lines[0] == "4 questions, labelled twice"
    assert "another configuration is best: 25%" in lines
    # q1, q3 and q4 have one best class; q3 has another one the second time.
    assert "pass the 10% rule: 75% and 75%, 75% both times, of these with the same best one 67%" in lines
