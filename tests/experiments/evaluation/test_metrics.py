"""Figures against values worked out by hand, and against independent implementations."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from rouge_score import rouge_scorer

from corag.types import Chunk
from experiments.evaluation.metrics import (
    answer_recall,
    answer_similarity,
    answer_words,
    character_figures,
    context_recall,
    evidence_figures,
    exact_match,
    f1,
    normalize_answer,
    redundancy,
    substring_match,
    true_k,
)
from tests.fakes import AxisEmbedder, HashEmbedder

WORDS = st.lists(st.sampled_from(["a", "the", "an", "new", "York", "York.", "runs", "running", "8,5", "é"]), max_size=6)
TEXTS = st.one_of(st.text(max_size=30), WORDS.map(" ".join))


@pytest.mark.slow
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_f1_and_exact_match_equal_the_official_script(answer, references):
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    asked = {"id": "q", "answers": {"text": references, "answer_start": [0] * len(references)}}
    official = squad({"id": "q", "prediction_text": answer}, asked)
    assert 100 * f1(answer, references) == pytest.approx(float(official["f1"]), rel=1e-5)
    assert 100 * exact_match(answer, references) == float(official["exact_match"])


def test_words_of_an_answer_need_no_spaces_between_them():
    assert (answer_words(["红茶需要沸水"]), answer_words(["boiling water", "hot"])) == (6, 1)


def chunk(document, start, end):
    return Chunk(f"{document}#{start}-{end}", "text", {"document": document, "start": start, "end": end})


EVIDENCE = json.loads(Path(__file__).with_name("evidence.json").read_text(encoding="utf-8"))
"""What each shows; chunks by document, start and end, or by id; gold passages and spans; and the figures."""


@pytest.mark.parametrize(("shows", "chunks", "gold", "recall", "precision", "full"), EVIDENCE)
def test_evidence_by_hand(shows, chunks, gold, recall, precision, full):
    chunks = [chunk(*one) if len(one) > 1 else Chunk(*one, "text") for one in chunks]
    assert evidence_figures(chunks, gold) == pytest.approx(
        {"evidence_recall": recall, "evidence_precision": precision, "full_evidence": full}
    )


RANGES = st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 9)).map(lambda r: (*r[:2], r[1] + r[2]))


@given(st.lists(RANGES, max_size=6), st.lists(RANGES, min_size=1, max_size=3), RANGES)
def test_characters_are_set_arithmetic(shown, gold, more):
    def characters(ranges):
        return {(document, place) for document, start, end in ranges for place in range(start, end)}

    figures, one, two = character_figures(shown, gold), characters(shown), characters(gold)
    assert all(0 <= value <= 1 for value in figures.values())
    assert figures["character_recall"] == len(one & two) / len(two)
    assert figures["character_precision"] == (len(one & two) / len(one) if one else 0)
    assert figures["character_iou"] == len(one & two) / len(one | two)
    assert character_figures([*shown, more], gold)["character_recall"] >= figures["character_recall"]


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("It is the Eiffel Tower, in Paris.", ["Louvre", "The Eiffel Tower!"], 1.0),
        ("A party", ["art"], 0.0),
        ("Paris", ["Paris, France"], 0.0),
        ("Paris", ["the", ""], 0.0),
        ("", ["Paris"], 0.0),
    ],
)
def test_substring_match(answer, references, expected):
    assert substring_match(answer, references) == expected


def test_similarity_of_answers_and_redundancy_of_a_selection():
    assert answer_similarity("same", "same", HashEmbedder()) == pytest.approx(1)
    assert answer_similarity("a", "b", AxisEmbedder()) == 0
    assert redundancy(["a1", "a2", "c1", "d1"], AxisEmbedder()) == 0.5
    assert redundancy(["a1"], AxisEmbedder()) == redundancy([], AxisEmbedder()) == 0


def test_context_recall_is_the_mean_of_what_is_known():
    figures = {
        "evidence_recall": [1.0, 1.0, 1.0, np.nan],
        "character_recall": [0.4, np.nan, np.nan, np.nan],
        "sentence_recall": [0.9, 0.5, np.nan, np.nan],
        "answer_recall": [np.nan, 0.3, 0.2, np.nan],
    }
    assert_allclose(context_recall(figures), [0.7, 0.6, 0.6, np.nan])
    assert float(context_recall({"answer_recall": 0.25})) == 0.25


def test_the_depth_of_the_evidence():
    ranking = [chunk("a", 0, 50), chunk("b", 0, 50), chunk("a", 50, 100), Chunk("c", "text")]
    assert true_k(ranking, ["c", "a"]) == 4
    assert true_k(ranking, ["a#60-90", "b#10-20"]) == 3
    assert true_k(ranking, ["a#40-60"]) == 1  # half of it
    assert true_k(ranking, ["a", "d"]) is None


def test_words_of_any_script_count():
    assert answer_recall("柏林是德国的首都。", ["德国"]) == 1.0
    assert answer_recall("Der größte See liegt bei Müritz.", ["die größten Seen", "Müritz"]) == 1.0
    assert answer_recall("Die Stadt", ["größte Stadt"]) == 0.5
    assert normalize_answer("东京 2020!") == "东 京 2020"
    # As rouge-score has them, stems included.
    plain = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=True)
    for text in ("Two cats don't run", "A caf\xe9 with running dogs"):
        recall = plain.score("a dog runs, two cats", text.replace("\xe9", "e"))["rouge1"].recall
        assert answer_recall(text, ["a dog runs, two cats"]) == recall
