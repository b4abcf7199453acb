import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.protocol.leads import Quality
from experiments.tune.curve import LEAST_TEST, divided, kinds_of, main
from experiments.tune.table import write_labels

OTHER = "naive(reranker=bm25)"


def rows(kind, number, gain, *, groups=None, figure=0.5):
    """Questions whose quality `OTHER` raises by `gain`, and by a little more or less in turn."""
    for place in range(number):
        wobble = 0.05 if place % 2 else -0.05
        for name, value in (("corag", figure), (OTHER, figure + gain + wobble)):
            yield {
                "kind": kind,
                "query": f"q{place}",
                "part": "training",
                "group": f"g{place if groups is None else place % groups}",
                "configuration": name,
                "budget_tokens": 256,
                "f1": value,
                "evidence_recall": value,
            }


def table(path, *kinds):
    write_labels(path, [row for kind in kinds for row in kind], {})
    return str(path)


def run(tmp_path, labels, *arguments):
    out = tmp_path / "curve.json"
    status = main(["--out", str(out), "--labels", labels, "--draws", "10", *arguments])
    return status, json.loads(out.read_text()) if out.exists() else None


def test_own_questions_find_the_better_configuration_and_its_gain_by_hand(tmp_path, capsys):
    labels = table(tmp_path / "l.parquet", rows("ours", 60, 0.2), rows("a", 40, -0.1), rows("b", 40, 0.0))
    status, points = run(tmp_path, labels, "--only", "ours", "--sizes", "[30, 300]")
    (point,) = points
    assert status == 0 and point["questions"] == 30 and point["default"] == pytest.approx(0.5)
    assert point["chosen"] == {OTHER: 10}
    # Each question gains .15 or .25, whichever draws left it out.
    assert point["lead"]["mean"] == pytest.approx(0.2, abs=0.01) and point["lead"]["p"] < 0.01
    said = capsys.readouterr().out
    assert "| ours | 30 | 60, 60 | 0.500 | +0." in said and f"`{OTHER}`, 10 of 10 |" in said


def test_where_nothing_gains_the_default_stays_and_costs_nothing(tmp_path):
    labels = table(tmp_path / "l.parquet", rows("ours", 60, -0.3), rows("a", 40, -0.1))
    (point,) = run(tmp_path, labels, "--only", "ours", "--sizes", "[30]")[1]
    assert point["chosen"] == {"corag": 10} and point["lead"]["mean"] == 0


def test_the_other_kinds_are_the_prior(tmp_path):
    # Three questions say little; kinds that all lose by much say that this one will, too.
    losing = [rows(name, 100, -0.3) for name in "abcd"]
    labels = table(tmp_path / "l.parquet", rows("ours", 40, 0.03), *losing)
    (point,) = run(tmp_path, labels, "--only", "ours", "--sizes", "[3]")[1]
    assert point["chosen"] == {"corag": 10}
    alone = table(tmp_path / "alone.parquet", rows("ours", 40, 0.03), rows("a", 100, 0.03), rows("b", 100, 0.03))
    (point,) = run(tmp_path, alone, "--only", "ours", "--sizes", "[3]")[1]
    assert point["chosen"] == {OTHER: 10}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.integers(1, 40), st.integers(0, 5))
def test_own_questions_and_those_for_testing_share_no_group(groups, size, seed):
    names = np.array(groups)
    own, test = divided(names, size, np.random.default_rng(seed))
    assert not set(names[own]) & set(names[test])
    assert len(own) == min(size, len(set(own.tolist()))) and len(own) <= size
    assert len(own) == size or len(groups) < size
    assert set(names[test]) | set(names[own]) <= set(groups)


def test_questions_alone_may_be_kept_apart(tmp_path):
    labels = table(tmp_path / "l.parquet", rows("ours", 60, 0.2, groups=1), rows("a", 40, 0.0, groups=1))
    (point,) = run(tmp_path, labels, "--sizes", "[30]", "--only", "ours", "--apart", "questions")[1]
    assert point["lead"]["questions"] == point["lead"]["groups"] == 60
    assert point["lead"]["mean"] == pytest.approx(0.2, abs=0.01)


def test_one_large_group_leaves_nothing_for_testing(tmp_path, capsys):
    labels = table(tmp_path / "l.parquet", rows("ours", 60, 0.2, groups=1), rows("a", 40, 0.0, groups=1))
    assert run(tmp_path, labels, "--sizes", "[30]") == (2, None)
    assert f"has {30 + LEAST_TEST} questions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "[]"], "sizes is empty"),
        (["--sizes", "[0]"], "sizes"),
        (["--draws", "0"], "draws"),
        (["--apart", "moons"], "apart"),
        (["--only", "nowhere"], "kind 'nowhere' has no labels; the kinds are ours"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, capsys, arguments, message):
    labels = table(tmp_path / "l.parquet", rows("ours", 60, 0.2))
    assert run(tmp_path, labels, *arguments)[0] == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_kind_without_the_default_is_refused(tmp_path, capsys):
    kept = [row for row in rows("ours", 60, 0.2) if row["configuration"] != "corag" or row["query"] != "q3"]
    assert run(tmp_path, table(tmp_path / "l.parquet", kept))[0] == 2
    assert "kind 'ours' lack 'corag'" in capsys.readouterr().err


def test_configurations_that_some_question_lacks_take_no_part():
    kept = [row for row in rows("ours", 10, 0.2) if row["configuration"] == "corag" or row["query"] != "q3"]
    assert kinds_of(kept, Quality())["ours"].names == ("corag",)
