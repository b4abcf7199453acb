"""`corag tune`: the choice worked by hand, the checkpoint and the page."""

from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import DataError, InputError
from corag.models.trained import shipped_adapter
from corag.rerankers.bm25 import Bm25
from corag.rerankers.fused import FusedWeights
from experiments.adapters.fused import FusedExample, fitted, left_out, refitted
from experiments.evaluation.methods import FILLING
from experiments.labels.table import read_labels, read_metadata
from experiments.tune import TuneConfig, choose, tune
from tests.experiments.worlds import MANY_QUERIES, labels_of_methods, write_folder

NAMES = ("top-k", "full", "mmr", FILLING, "corag")


def test_of_what_keeps_a_promise_the_cheapest_is_used(tmp_path):
    # Each of 32 questions is about a document of its own. "top-k" keeps .97 of what filling holds, "full" all of it at
    # half of its tokens, and "mmr" as much on the mean, but nothing on two thirds of the questions.
    held = [[0.776, 0.8, 0.0, 0.8, 0.8], [0.776, 0.8, 0.0, 0.8, 0.8], [0.776, 0.8, 2.4, 0.8, 0.8]] * 10
    labels = labels_of_methods(tmp_path, held, (8, 32, 4, 64, 48), NAMES)
    fold = {name: number % 4 for number, name in enumerate(labels.ids)}
    config = TuneConfig("island", str(tmp_path / "out"))
    used, page = choose(labels, config, fold)
    assert used.config.fallback == "full" and not used.has_network
    assert "`full` keeps 100% of what filling the budget does, with 50% of its tokens." in page.markdown()
    assert choose(labels, replace(config, keep=0.96), fold)[0].config.fallback == "top-k"
    # What no passage answers says nothing.
    labels = labels_of_methods(tmp_path, [*held, [None] * 5], (8, 32, 4, 64, 48), NAMES)
    assert choose(labels, config, {**fold, labels.ids[-1]: 0})[0].config.fallback == "full"
    # Where the default spends as little, nothing is changed.
    used, page = choose(labels_of_methods(tmp_path, held, (8, 32, 4, 64, 32), NAMES), config, fold)
    assert used.config.fallback == "corag" and "The default keeps" in page.markdown()


def test_a_fitted_value_is_measured_by_the_half_that_has_not_seen_the_question(tmp_path):
    # The first of two columns is of a value that has not seen the questions of even folds: .6 there; the second .4.
    held = [[0.8, 0.8, 0.0, 0.6, 0.9], [0.8, 0.8, 0.0, 0.9, 0.4]] * 10
    labels = labels_of_methods(tmp_path, held, (64, 48, 4, 8, 16), (FILLING, "corag", "mmr", "first", "second"))
    fold = {name: number % 4 for number, name in enumerate(labels.ids)}
    used, page = choose(labels, TuneConfig("island", str(tmp_path / "out")), fold, labels.configurations[3:])
    [row] = [row for row in page.sections[0].blocks[0].rows if row[0] == "corag, its value fitted"]
    assert row[1:3] == ["0.500", "12"]
    assert used.config.configurations == labels.configurations[:3]


def questions_learned_from(weights, number, seed):
    """Examples with the shipped signals and one more, by which alone evidence is known: the first of four passages."""
    random = np.random.default_rng(seed)
    return [
        FusedExample(
            str(row), "kind", np.concatenate([random.random((4, len(weights.signals))), np.eye(4)[:, :1]], axis=1),
            np.zeros((4, 4)), np.zeros((4, 4)), np.eye(4)[0], random.random(4), random.random(4), np.arange(4),
            np.eye(4)[0],
        )
        for row in range(number)
    ]  # fmt: skip


def test_a_further_signal_gets_the_weight_that_it_deserves():
    shipped = FusedWeights.load(shipped_adapter("fused"))
    weights = refitted(shipped, questions_learned_from(shipped, 40, 0), (*shipped.signals, "mine"))
    size = len(shipped.signals)
    np.testing.assert_allclose(np.delete(weights.passage, [size, 2 * size + 1]) / shipped.passage, 0, atol=0.3)
    assert weights.passage[size] > 1
    for one in questions_learned_from(shipped, 5, 1):
        logits = weights.passages(one.signals, one.likeness, one.links)
        assert logits.argmax() == weights.sentences(logits, one.owner, one.late, one.words).argmax() == 0


def test_a_further_signal_also_counts_for_passages_that_are_like_one_it_knows():
    shipped = FusedWeights.load(shipped_adapter("fused"))
    alike = np.zeros((4, 4))
    alike[[0, 1], [1, 0]] = 1
    # The second passage is evidence, too, which its likeness to the first alone tells.
    both = [
        replace(one, likeness=alike, gold=np.array([1.0, 1, 0, 0])) for one in questions_learned_from(shipped, 40, 0)
    ]
    weights, size = refitted(shipped, both, (*shipped.signals, "mine")), len(shipped.signals)
    assert weights.passage[size] > 0 and weights.passage[2 * size + 1] > 1
    ranked = [np.argsort(weights.passages(one.signals, one.likeness, one.links))[2:] for one in both]
    assert sum(sorted(of) == [0, 1] for of in ranked) > 35


def test_links_get_a_weight_where_linked_passages_are_evidence():
    shipped = FusedWeights.load(shipped_adapter("fused"))
    examples, signals = questions_learned_from(shipped, 40, 0), (*shipped.signals, "mine")
    # The first passage, which is known to be evidence, names the second, which nothing else tells.
    second = np.zeros((4, 4))
    second[0, 1] = 1
    linked = [replace(one, links=second, gold=np.array([1.0, 1, 0, 0])) for one in examples]
    weights = fitted(linked, signals)
    assert weights.link > 1 and fitted(examples, signals).link == 0
    ranked = [np.argsort(weights.passages(one.signals, one.likeness, one.links))[2:] for one in linked]
    assert sum(sorted(of) == [0, 1] for of in ranked) > 35
    assert fitted([replace(one, links=second) for one in examples], signals).link < 0.1


def test_where_everything_is_evidence_or_nothing_there_is_nothing_to_fit(tmp_path):
    shipped = FusedWeights.load(shipped_adapter("fused"))
    examples, signals = questions_learned_from(shipped, 8, 0), (*shipped.signals, "mine")
    all_of_it = [replace(one, gold=np.ones(4), right=np.ones(4)) for one in examples]
    kept = refitted(shipped, all_of_it, signals)
    assert np.array_equal(kept.passage[np.r_[:5, 6:11, 12]], shipped.passage) and not kept.passage[[5, 11]].any()
    assert np.array_equal(kept.sentence, shipped.sentence)
    # By the words of answers such as "yes" no sentence is evidence.
    blind = fitted([replace(one, right=np.zeros(4)) for one in examples], signals)
    assert blind.passage.any() and blind.sentence.tolist() == [1, 0, 0, 0]
    without = [replace(one, kind=f"{tmp_path}/data", gold=np.zeros(4), right=np.zeros(4)) for one in examples]
    figures = left_out(examples + without, signals, tmp_path / "left-out")
    assert not figures and [path.name for path in tmp_path.iterdir()] == ["left-out"]


@pytest.mark.slow
def test_from_questions_to_a_checkpoint_and_a_value_that_are_used(tmp_path):
    data, out = write_folder(tmp_path / "island", queries=MANY_QUERIES), tmp_path / "ours, tuned"
    config = TuneConfig(
        str(data), str(out), configurations="naive(reranker=bm25)", signals="bm25(b=0.9)", budget=48,
        tokenizer="estimate", quiet=True,
    )  # fmt: skip
    tune(config)
    assert read_metadata(out / "labels.parquet")["tokenizer"] == corag.tokens("estimate").name
    labels = read_labels(str(out / "labels.parquet"))
    page = (out / "checkpoint" / "README.md").read_text()
    assert "of what filling the budget does" in page and "corag, its value fitted" in page
    selector = corag.selector("corag", agent=out)
    offered = [corag.Candidate(corag.Chunk("a", "Varn is an island."), 0.9)]
    selection = selector.select("What is Varn?", offered, 48)
    assert selection.ids and selection.trace.details["configuration"] in labels.configurations
    # The value reads the user's reranker, by name or as an object; it keeps the default's promise and unit.
    value = {"adapter": out / "fused"}
    for signals in ([], ["bm25(b=.9)"], [Bm25(b=0.9)]):
        reranker = corag.reranker("fused", **value, signals=signals)
        assert reranker.weights.signals[-1] == "bm25(b=0.9)"
        assert (
            "expected to hold"
            in corag.selector("corag", reranker=reranker).select("What is Varn?", offered, 48).trace.details["because"]
        )
    with pytest.raises(InputError, match=r"has no weights for bm25\(b=0.9\)"):
        corag.reranker("fused(signals=[bm25(b=0.9)])")
    # Another promise needs no new measurement.
    table = (out / "labels.parquet").read_bytes()
    tune(replace(config, keep=0.9))
    assert (out / "labels.parquet").read_bytes() == table
    # With other settings nothing is fitted before the table is refused.
    fitted_before = (out / "fused" / "README.md").stat().st_mtime_ns
    with pytest.raises(DataError, match="other questions"):
        tune(replace(config, budget=50))
    assert (out / "fused" / "README.md").stat().st_mtime_ns == fitted_before


def test_too_few_questions_and_none_to_learn_from(tmp_path):
    without = [{**row, "answers": answers, "gold": []} for answers in ([], ["Yes."]) for row in MANY_QUERIES]
    for queries in (MANY_QUERIES[:5], without[:20], without[20:]):
        with pytest.raises(DataError, match="question"):
            tune(TuneConfig(str(write_folder(tmp_path / "island", queries=queries)), str(tmp_path / "out"), quiet=True))
    with pytest.raises(InputError, match="did you mean 'bm25'"):
        TuneConfig("island", "out", signals="minilm-late,bm52")
