from math import log

import numpy as np
import pytest

from experiments.bench.harness import Timing
from experiments.bench.run import selectors as part
from experiments.bench.selectors import bench_selectors, growth_power, plot, raptor_rows, topical_vectors

CURVE = [
    {"chunks": 100, "seconds": 0.5, "clusters": 7, "peak_mb": 3.0},
    {"chunks": 200, "seconds": 1.5, "clusters": 9, "peak_mb": 6.0},
    {"chunks": 400, "seconds": 9.0, "clusters": 11, "peak_mb": 24.0},
]


def test_every_selector_has_a_line(monkeypatch):
    monkeypatch.setattr(part, "QUERIES", 20)
    monkeypatch.setattr(part, "CAR_CANDIDATES", 8)
    found = bench_selectors(Timing(1), raptor_chunks=(100,))
    rows = {row["setting"]: row for row in found["rows"]}
    assert len([name for name in rows if name.startswith("car, ")]) == 8
    assert len([name for name in rows if name.startswith("adaptive-k, ")]) == 3
    assert all(row["ms"] > 0 for row in rows.values())
    batch = rows["adaptive-k, largest-gap, 20 x 1000"]
    assert batch["us_per_query"] == pytest.approx(1e3 * batch["ms"] / 20)
    assert rows["edc2, clusters of 100"]["us_per_query"] == pytest.approx(1e3 * rows["edc2, clusters of 100"]["ms"])
    assert rows["raptor, clusters of 100 chunks"]["growth"] is None
    assert found["curve"][0]["clusters"] > 1 and found["curve"][0]["peak_mb"] >= 0


def test_the_power_of_growth_by_hand():
    rows = raptor_rows(CURVE)
    assert [row["ms"] for row in rows] == [500, 1500, 9000]
    assert rows[0]["growth"] is None
    assert [row["growth"] for row in rows[1:]] == [pytest.approx(1), pytest.approx(2)]
    assert growth_power(CURVE[0] | {"peak_mb": 0.0}, CURVE[1]) is None
    assert growth_power(CURVE[0], CURVE[2]) == pytest.approx(log(8) / log(4))


def test_the_figure_is_an_svg():
    assert plot({"curve": CURVE}).startswith("<svg")


def test_vectors_are_of_length_one_and_the_same_each_time():
    vectors = topical_vectors(5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    np.testing.assert_array_equal(vectors, topical_vectors(5))
