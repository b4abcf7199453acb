"""What an oracle's choices are worth to another reader, by hand and from the command line."""

import pytest

from corag.errors import DataError
from experiments.protocol.ceiling import ceiling, main
from experiments.protocol.leads import Quality
from experiments.tune.table import write_labels

F1 = Quality(evidence_weight=0)


def rows(*questions):
    """Rows of kind k: a question is its F1 by configuration, in a group of its own."""
    return [
        {
            "kind": "k", "query": f"q{number}", "part": "training", "group": f"g{number}", "configuration": name,
            "budget_tokens": 256, "f1": value,
        }
        for number, question in enumerate(questions)
        for name, value in question.items()
    ]  # fmt: skip


FIRST = rows({"corag": 0.0, "a": 1.0, "b": 0.5}, {"corag": 0.5, "a": 0.5, "b": 0.0}, {"corag": 0.2, "a": 0.6, "b": 0.6})


def test_by_hand():
    second = rows({"corag": 0.5, "a": 0.75, "b": 1.0}, {"corag": 0.0, "a": 1.0}, {"corag": 0.1, "a": 0.3, "b": 0.7})
    found = ceiling(FIRST, second, F1, "corag")
    # Chosen: a; the default, which is as good as any; the mean of a and b.
    assert found.gap.mean == pytest.approx((1.0 + 0.0 + 0.4) / 3)
    assert found.kept.mean == pytest.approx((0.25 + 0.0 + 0.4) / 3)
    assert found.share == pytest.approx(0.65 / 1.4)
    assert found.low <= found.share <= found.high


def test_the_reader_itself_keeps_all():
    found = ceiling(FIRST, FIRST, F1, "corag")
    assert found.share == 1 and found.gap == found.kept


def test_a_question_counts_where_both_measured_it_with_the_default_and_another():
    second = rows({"corag": 0.5, "a": 0.75}, {"a": 1.0}, {"corag": 0.1})
    assert ceiling(FIRST, second, F1, "corag").gap.questions == 1


@pytest.mark.parametrize("second", [[], rows({"a": 1.0}), rows({}, {"corag": 1.0, "a": 0.0})])
def test_nothing_to_compare(second):
    with pytest.raises(DataError, match="share no question on which another configuration beats 'corag'"):
        ceiling(FIRST, second, F1, "corag")


def test_command(tmp_path, capsys):
    for name in ("first", "second"):
        write_labels(tmp_path / f"{name}.parquet", FIRST, {})
    arguments = ["--second", str(tmp_path / "second.parquet"), "--labels", str(tmp_path / "first.parquet")]
    assert main(arguments) == 0
    assert "kept: 100% (" in capsys.readouterr().out
    assert main(["--second", str(tmp_path / "none.parquet")]) == 2
    assert "none.parquet does not exist" in capsys.readouterr().err
