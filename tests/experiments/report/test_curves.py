"""Curves of quality against tokens, worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.cli.main import main
from experiments.report.comparison import result_page, sets_page
from experiments.report.curves import Curves
from experiments.report.measures import MEASURES
from experiments.report.results import CurvePoint, Result
from tests.experiments.worlds import result_of

# Tokens and quality of two questions. By tokens: (10, .1), (20, .6), (30, .5), (40, .8), (50, .7).
CORAG = ["corag(cost_weight=0.8)", "corag(cost_weight=0.1)", "corag(cost_weight=0)"]
TOKENS = dict(zip(CORAG, ((10, 10), (10, 30), (40, 40)), strict=True))
QUALITY = dict(zip(CORAG, ((0.0, 0.2), (0.2, 1.0), (0.6, 1.0)), strict=True))
SIMPLE_TOKENS = {"sentence-threshold(threshold=0.5)": (20, 40), "naive": (50, 50)}
SIMPLE_QUALITY = {"sentence-threshold(threshold=0.5)": (0.4, 0.6), "naive": (0.6, 0.8)}


def rows_of(quality, tokens):
    return [
        {"query": f"q{number}", "evidence": value, "kept": value, "cost_tokens": cost, "group": f"g{number}"}
        for number, (value, cost) in enumerate(zip(quality, tokens, strict=True))
    ]


def result_with_curves(default="corag(cost_weight=0.1)", budget=64):
    tokens, quality = TOKENS | SIMPLE_TOKENS, QUALITY | SIMPLE_QUALITY
    points = [CurvePoint("default", "corag", budget, rows_of(quality[default], tokens[default]))]
    points += [
        CurvePoint(name.partition("(")[0], name, budget, rows_of(quality[name], tokens[name])) for name in tokens
    ]
    rows = {method: rows_of((0.1, 0.3), (25, 25)) for method in ("corag", "top-k")}
    return Result(result_of(budget, methods=tuple(rows)) | {"queries": 2}, rows, points)


def test_the_hull_and_the_gain_at_equal_tokens():
    curves = Curves.of([result_with_curves()])
    names = [point.method for point in curves.points]
    assert curves.tokens.mean(axis=1)[curves.hull()].tolist() == [10, 20, 40]
    corag = curves.curve("corag")
    # At 30 tokens, halfway between those of 20 and 40: (.4, 1) against (.4, .6).
    gain = curves.gain(corag, names.index("sentence-threshold(threshold=0.5)"))
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.2, 0.0, 0.4))
    # Beyond its last point the line stays where it is: (.6, 1) against (.6, .8).
    assert curves.gain(corag, names.index("naive")).mean == pytest.approx(0.1)
    assert curves.gain(corag[1:], corag[0]) is None


@pytest.mark.parametrize(
    ("default", "tokens", "expected"),
    [
        (CORAG[1], 20, "on the Pareto front of all 7 points."),
        ("naive", 50, "below the Pareto front of all 7 points, by 0.100"),
        (CORAG[2], 45, "as high as the Pareto front of all 7 points, for which 40 tokens are enough."),
    ],
)
def test_the_verdict_on_the_default(default, tokens, expected):
    result = result_with_curves(default)
    for row in result.curves[0].rows:
        row["cost_tokens"] = tokens
    text = Curves.of([result]).verdict()
    assert f"at {tokens} tokens) is {expected}" in text and "+0.200" in text and "+0.100" in text


points = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12)


@given(points)
def test_no_point_is_above_the_hull(drawn):
    x, y = np.array(drawn, dtype=float).T
    corag = [CurvePoint("corag", f"corag(cost_weight={row})", 64) for row in range(len(drawn))]
    curves = Curves(MEASURES["kept"], corag, x[:, None], y[:, None], ["g"])
    hull = curves.hull()
    for row in range(len(drawn)):
        above = curves.gain(hull, row).mean
        assert above >= -1e-9 and (row not in hull or above == pytest.approx(0))
    assert y[hull].max() == y.max() and x[hull].min() == x.min()
    assert np.all(np.diff(x[hull]) > 0) and np.all(np.diff(y[hull]) > 0)


def test_a_compared_method_is_drawn_once_if_it_is_a_point_of_its_curve():
    result = result_with_curves()
    result.rows["sentence-threshold"] = rows_of(
        *(of["sentence-threshold(threshold=0.5)"] for of in (SIMPLE_QUALITY, SIMPLE_TOKENS))
    )
    assert "sentence-threshold" not in [point.method for point in Curves.of([result]).points]
    result.rows["sentence-threshold"] = rows_of((0.4, 0.5), (20, 40))
    assert "sentence-threshold" in [point.method for point in Curves.of([result]).points]


def test_pages_show_curves_and_say_what_they_mean(tmp_path):
    result = result_with_curves()
    page = sets_page({"a": [result], "b": [result]}, title="T")
    assert page.html().count("<svg") == 3 and Curves.mean([Curves.of([result])] * 2).verdict() in page.markdown()
    path, other = tmp_path / "r.json", tmp_path / "other.json"
    result.write(path)
    assert Result.read(path) == result
    assert "is on the Pareto front of all 7 points" in result_page([result], title="T").markdown()
    # The command draws the mean of several data folders, of several files.
    Result(result.record | {"data": "another"}, result.rows, result.curves).write(other)
    for out in ("mean.svg", "page.html", "page.md"):
        assert main(["report", "--results", f"{path},{other}", "--out", str(tmp_path / out)]) == 0
    assert (tmp_path / "mean.svg").read_text().startswith("<svg")
    assert "Means of 2 sets" in (tmp_path / "page.html").read_text()
    path.with_suffix(".curves.jsonl").unlink()
    for wrong in (["--results", str(path), "--out", str(tmp_path / "one.svg")], ["--results", ""]):
        assert main(["report", *wrong]) == 2
