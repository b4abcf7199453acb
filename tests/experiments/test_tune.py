"""`corag tune`: the choice worked by hand, the checkpoint and the page."""

from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import DataError
from experiments.evaluation.methods import FILLING
from experiments.labels.table import read_labels, read_metadata
from experiments.tune import TuneConfig, best_first, choose, tune
from tests.experiments.worlds import MANY_QUERIES, label_row, question_row, write_folder, write_labels

NAMES = ("top-k", "full", "mmr", FILLING, "corag")


def labels_of(tmp_path, values, tokens):
    """Labels of what is kept `[n, C]`, each question about a document of its own; `tokens` of configurations."""
    rows = [
        label_row(f"q{row}", "a", value, configuration=name, evidence_recall=value, cost_tokens=cost)
        for row, of_row in enumerate(values)
        for name, value, cost in zip(NAMES, of_row, tokens, strict=True)
    ]
    questions = [question_row(f"q{row}", "?", np.eye(4)[row % 4]) for row in range(len(values))]
    return read_labels(str(write_labels(tmp_path / "labels.parquet", rows, questions)))


def test_of_what_keeps_a_promise_the_cheapest_is_used_and_first(tmp_path):
    # Each of 30 questions is about a document of its own. "top-k" keeps .97 of what filling holds, "full" all of it at
    # half of its tokens, and "mmr" as much on the mean, but nothing on two thirds of the questions.
    held = [[0.776, 0.8, 0.0, 0.8, 0.8], [0.776, 0.8, 0.0, 0.8, 0.8], [0.776, 0.8, 2.4, 0.8, 0.8]] * 10
    labels = labels_of(tmp_path, held, (8, 32, 4, 64, 48))
    order, least = best_first(labels, 0.98)
    assert order == [1, 4, 3, 0, 2]
    assert least[[0, 1, 3]] == pytest.approx([0.97, 1, 1]) and least[2] < 0.9
    assert best_first(labels, 0.96)[0] == [0, 1, 4, 3, 2]
    config = TuneConfig("island", str(tmp_path / "out"))
    used, page = choose(labels, config)
    assert str(used.config.fallback) == "full" and not used.has_network
    assert "`full` keeps 100% of what filling the budget does, with 50% fewer tokens." in page.markdown()
    assert page.sections[1].blocks[0].rows[0][0] == "full"
    # Where the default spends as little, nothing is changed.
    used, page = choose(labels_of(tmp_path, held, (8, 32, 4, 64, 32)), config)
    assert str(used.config.fallback) == "corag" and "The default keeps" in page.markdown()


@pytest.mark.slow
def test_from_questions_to_a_checkpoint_that_is_used(tmp_path):
    data = write_folder(tmp_path / "island", queries=MANY_QUERIES)
    config = TuneConfig(
        str(data), str(tmp_path / "tuned"), configurations="naive(reranker=bm25),top-k(k=1)", budget=48,
        tokenizer="estimate", quiet=True,
    )  # fmt: skip
    tune(config)
    assert read_metadata(tmp_path / "tuned" / "labels.parquet")["tokenizer"] == corag.tokens("estimate").name
    files = {path.name for path in (tmp_path / "tuned").iterdir()}
    assert files - {"model.safetensors"} == {"README.md", "config.json", "report.html", "labels.parquet"}
    labels = read_labels(str(tmp_path / "tuned" / "labels.parquet"))
    assert labels.configurations[-1] == "top-k(k=1)"
    page = (tmp_path / "tuned" / "README.md").read_text()
    assert page.index("of what filling the budget does") < page.index("On held-out questions")
    selector = corag.selector("corag", agent=tmp_path / "tuned")
    offered = [corag.Candidate(corag.Chunk("a", "Varn is an island."), 0.9)]
    selection = selector.select("What is Varn?", offered, 48)
    assert selection.ids and selection.trace.details["configuration"] in labels.configurations
    # Another promise needs no new measurement.
    table = (tmp_path / "tuned" / "labels.parquet").read_bytes()
    tune(replace(config, keep=0.9))
    assert (tmp_path / "tuned" / "labels.parquet").read_bytes() == table


def test_too_few_questions_and_none_to_learn_from(tmp_path):
    for queries in (MANY_QUERIES[:5], [{**row, "answers": [], "gold": []} for row in MANY_QUERIES]):
        with pytest.raises(DataError, match="question"):
            tune(TuneConfig(str(write_folder(tmp_path / "island", queries=queries)), str(tmp_path / "out"), quiet=True))
