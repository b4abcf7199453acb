"""Rows of the reader: answers where they belong, the same rows for the same seed, every rule of a batch."""

import numpy as np
import pytest

from corag.text.data import DataFolder
from corag.text.tokens import load_tokenizer, model_folder
from experiments.adapters.config import ReaderTraining
from experiments.adapters.reader_rows import ReadingExample, TokenPassage, examples, rows
from experiments.data.splits import held_out
from tests.experiments.worlds import write_folder

SPAN, NONE, YES, NO = range(4)


def training(min_tokens, max_tokens, share=0.0):
    return ReaderTraining(
        out="", sources=(), min_tokens=min_tokens, max_tokens=max_tokens, unanswerable=share, distractor=share
    )


WIDE = training(64, 128)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(model_folder() / "tokenizer.json")


@pytest.fixture(scope="module")
def learned(small_data):
    folder = DataFolder.open(small_data)
    return {example.id: example for example in examples(folder, folder.queries, repeat=1)}


def toy(kind=SPAN, answers=((2, 3),), length=20, others=1, question=4):
    gold = TokenPassage(np.arange(1000, 1000 + length), answers)
    return ReadingExample("toy", np.arange(question), kind, (gold,), (TokenPassage(np.arange(2000, 2010)),) * others, 1)


def test_answers_are_found_in_the_gold_passages(learned, tokenizer):
    row = rows([learned["q8"]], WIDE, (0,))[0]
    assert [tokenizer.decode(row.ids[start : end + 1].tolist()) for start, end in row.spans] == ["1902"]
    assert row.kind == SPAN
    text = tokenizer.decode(row.ids.tolist(), skip_special_tokens=False)
    assert text.startswith("[CLS] when did mount harrow last erupt? [SEP] mount harrow mount harrow is the higher")
    assert text.endswith("[SEP]")
    asked = row.ids.tolist().index(102) + 1
    assert row.types.tolist() == [0] * asked + [1] * (len(row.ids) - asked)


def test_questions_without_an_answer_are_left_out_and_distractors_hold_none(learned, tokenizer):
    assert "q9" not in learned and all(example.others for example in learned.values())
    assert not any("herring" in tokenizer.decode(other.ids.tolist()) for other in learned["q7"].others)


def test_annotated_offsets_win_over_other_occurrences(tmp_path, tokenizer):
    text = "Rain fell in May. It was May who saw the rain."
    query = {
        "id": "q", "question": "Who?", "answers": ["May"], "answer_starts": [25], "gold": ["p"], "split": "train",
    }  # fmt: skip
    folder = DataFolder.open(
        write_folder(tmp_path / "d", documents=[{"id": "p", "title": "May", "text": text}], queries=[query])
    )
    (example,) = examples(folder, folder.queries, repeat=1)
    # may | rain fell in may . it was may
    assert example.gold[0].answers == ((8, 8),)


def test_the_same_seed_gives_the_same_rows():
    first, again, other = (
        [row.ids.tolist() for row in rows([toy()] * 20, training(12, 16, share=0.5), seed)]
        for seed in ((0, 0), (0, 0), (0, 1))
    )
    assert first == again != other


def test_windows_hold_the_answer_and_keep_to_their_length():
    for row in rows([toy(answers=((11, 13),))] * 50, training(12, 16), (0,)):
        assert 12 <= len(row.ids) <= 16
        ((start, end),) = row.spans
        assert row.ids[start : end + 1].tolist() == [1011, 1012, 1013]


def test_held_out_questions_share_no_gold_with_the_others(small_data):
    folder = DataFolder.open(small_data)
    out = held_out(folder, folder.queries, 0.3)
    assert out == held_out(folder, folder.queries, 0.3) != held_out(folder, folder.queries, 0.3, seed=1)
    assert 0.3 * len(folder.queries) <= len(out) < len(folder.queries)
    gold = [{name for query in folder.queries if (query.id in out) == side for name in query.gold} for side in (0, 1)]
    assert not gold[0] & gold[1]
