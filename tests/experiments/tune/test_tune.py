"""`corag tune`: shrinkage worked by hand, the choice, the checkpoint and the page."""

from dataclasses import replace

import numpy as np
import pytest

import agent
import corag
from corag.errors import DataError
from experiments.labels.table import read_labels
from experiments.tune import tune as module
from experiments.tune.config import DEFAULT, TuneConfig
from experiments.tune.shrinkage import WITHOUT_LABELS, GainPrior, estimate, prior_for, standard_error
from experiments.tune.tune import choose, tune, tuning_page
from tests.experiments.worlds import QUERIES, label_row, question_row, write_folder, write_labels

PRIOR = GainPrior(mean=0.0, variance=0.01, within=0.04)


def test_the_posterior_worked_by_hand():
    gains, groups = np.array([0.1, 0.3, 0.2, 0.2]), list("abcd")
    found = estimate(gains, groups, PRIOR)
    variance = (20 * 0.04 + 0.02) / 23 / 4
    weight = 0.01 / (0.01 + variance)
    assert found.own == pytest.approx(0.2) and found.weight == pytest.approx(weight)
    assert found.posterior == pytest.approx(weight * 0.2)
    assert found.spread == pytest.approx(np.sqrt(weight * variance))
    assert found.cautious == pytest.approx(found.posterior - found.spread)


def test_more_questions_weigh_more_and_one_document_counts_once():
    rng = np.random.default_rng(0)
    gains = rng.normal(0.1, 0.2, 200)
    few, many = estimate(gains[:10], list(range(10)), PRIOR), estimate(gains, list(range(200)), PRIOR)
    assert few.weight < many.weight < 1
    assert estimate(gains, [number // 40 for number in range(200)], PRIOR).spread >= many.spread
    assert standard_error(np.array([1.0, -1.0]), ["a", "b"]) == pytest.approx(1.0)


def test_a_configuration_without_a_prior_is_in_doubt_not_better():
    known = {"a": {"mean": 0.1, "variance": 0.01, "within": 0.04}, "b": {"mean": 0.3, "variance": 0.01, "within": 0.04}}
    assert prior_for("a", known) == GainPrior(0.1, 0.01, 0.04)
    other = prior_for("c", known)
    assert other.mean == 0.0 and other.variance == pytest.approx(0.01 + (0.01 + 0.09) / 2)
    assert prior_for("c", {}) == WITHOUT_LABELS
    priors = agent.load(corag.models.trained.shipped_checkpoint("agent-minilm")).config.priors
    assert prior_for("top-tokens", priors).mean < 0


def config_of(data, out, **settings):
    return TuneConfig(data=str(data), out=str(out), **{"quiet": True, "prefer": "0", **settings})


def labels_of(tmp_path, values, vectors=None):
    """Labels of quality `[n, C]`: the default first."""
    names = [DEFAULT, "top-k", "full"][: len(values[0])]
    rows = [
        label_row(f"q{row}", "a", value, configuration=name, f1=value, evidence_recall=value)
        for row, of_row in enumerate(values)
        for name, value in zip(names, of_row, strict=True)
    ]
    vectors = np.eye(len(values)) if vectors is None else vectors
    questions = [question_row(f"q{row}", "?", vector) for row, vector in enumerate(vectors)]
    return read_labels(str(write_labels(tmp_path / "labels.parquet", rows, questions)))


def test_what_gains_is_chosen_and_the_default_kept_in_doubt(tmp_path):
    rng = np.random.default_rng(0)
    default = rng.uniform(0.2, 0.5, 40)
    better = labels_of(tmp_path, np.stack([default, default + rng.uniform(0.1, 0.4, 40)], axis=1).tolist())
    tuning, trained = choose(better, config_of("data", tmp_path))
    assert (tuning.configuration, tuning.uses_network) == ("top-k", False)
    assert tuning.gain.low > 0 and tuning.verdict.startswith("Yes")
    assert not trained.has_network and str(trained.predict(np.zeros(0))) == "top-k"
    same = labels_of(tmp_path, np.stack([default, default + rng.normal(0, 0.1, 40)], axis=1).tolist())
    tuning, trained = choose(same, config_of("data", tmp_path))
    assert tuning.keeps_default and str(trained.config.fallback) == DEFAULT and tuning.verdict.startswith("No")


@pytest.mark.slow
def test_a_network_is_kept_only_where_it_gains(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDS", 2)
    monkeypatch.setattr(module, "EPOCHS", 10)
    # The vector says which of two is better.
    kind = np.arange(60) % 2
    values = np.where(kind[:, None] == [0, 1], 0.9, 0.1)
    vectors = np.random.default_rng(0).normal(0, 0.1, (60, 4)) + np.eye(4)[kind]
    labels = labels_of(tmp_path, values.tolist(), vectors)
    tuning, trained = choose(labels, config_of("data", tmp_path))
    assert tuning.uses_network and tuning.network_gain.low > 0 and trained.has_network
    names = [one.configuration for one in trained.predict(labels.features(("query", "curve")))]
    assert np.mean([name == (DEFAULT, "top-k")[one] for name, one in zip(names, kind, strict=True)]) > 0.95
    noise = labels_of(tmp_path, np.random.default_rng(1).uniform(size=(60, 2)).tolist(), vectors)
    assert not choose(noise, config_of("data", tmp_path))[0].uses_network


def test_the_price_of_tokens():
    config = config_of("data", "out")
    assert replace(config, prefer="tokens").price > replace(config, prefer="balanced").price > 0


def questions(number=24):
    """As many questions, told apart by their ids."""
    rows = [row for row in QUERIES if row["gold"]]
    return [{**rows[n % len(rows)], "id": f"q{n}", "split": "train"} for n in range(number)]


@pytest.mark.slow
def test_from_questions_to_a_checkpoint_that_is_used(tmp_path):
    data = write_folder(tmp_path / "island", queries=questions())
    config = config_of(data, tmp_path / "tuned", configurations="naive(reranker=bm25),top-k(k=1)", budget=48)
    tuning = tune(config)
    files = {path.name for path in (tmp_path / "tuned").iterdir()}
    assert files == {"README.md", "config.json", "report.html", "labels.parquet"}
    assert set(tuning.means) == {DEFAULT, "naive(reranker=bm25)", "top-k(k=1)"}
    page = (tmp_path / "tuned" / "README.md").read_text()
    assert tuning.verdict in page and "What limits this result" in page and "24 questions" in page
    selector = corag.selector("corag", agent=tmp_path / "tuned")
    offered = [corag.Candidate(corag.Chunk("a", "Varn is an island."), 0.9)]
    selection, same = (
        one.select("What is Varn?", offered, 48) for one in (selector, corag.selector(tuning.configuration))
    )
    assert selection.ids == same.ids
    # If that is `corag`, the trace says what the shipped agent named.
    assert selection.trace.details["configuration"] == same.trace.details.get("configuration", tuning.configuration)
    # Another price needs no new measurement.
    table = (tmp_path / "tuned" / "labels.parquet").read_bytes()
    tune(replace(config, prefer="tokens"))
    assert (tmp_path / "tuned" / "labels.parquet").read_bytes() == table


def test_too_few_questions_and_none_to_learn_from(tmp_path):
    for queries in (questions(5), [{**row, "answers": [], "gold": []} for row in questions()]):
        with pytest.raises(DataError, match="queries"):
            tune(config_of(write_folder(tmp_path / "island", queries=queries), tmp_path / "out"))


def test_the_page_says_what_is_missing(tmp_path):
    labels = labels_of(tmp_path, [[0.5, 0.6]] * 22)
    config = config_of("data", tmp_path)
    page = tuning_page(choose(labels, config)[0], labels, config).markdown()
    assert "at least 60" in page and "top-k" in page and "Smallest detectable gain" in page
