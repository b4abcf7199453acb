import json

import numpy as np
import pytest
import torch

from corag.models.trained import load_adapter
from corag.rerankers.minilm_cross import MiniLMCross
from corag.types import Chunk
from experiments.adapters import cross
from experiments.adapters.config import CrossTraining, EvidenceSource
from experiments.adapters.pools import Pooled


def drawn(pooled, seed=0):
    tokens = lambda texts: [np.array([int(text.split()[-1]) if text != "Who?" else 99]) for text in texts]  # noqa: E731
    return cross.draw(pooled, tokens, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_combinations_of_evidence_parts_of_it_and_distractors(seed):
    chunks = tuple(Chunk(f"c{number}", f"text {number}") for number in range(6))
    rows = drawn(Pooled("q", "Who?", chunks, (0.0,) * 6, (3, 1), ((1, 3),)), seed)
    by_text = {tuple(row.ids[3:-1]): row for row in rows}
    assert by_text[3, 1].share == 1 and by_text[3, 1].is_enough
    assert by_text[1, 3].share == pytest.approx(0.999) and by_text[1, 3].is_enough  # told the other way round
    for text, row in by_text.items():
        assert row.is_enough == ({1, 3} <= set(text)) and round(row.share, 2) == len({1, 3} & set(text)) / 2
        assert row.types.tolist() == [0, 0, 0] + [1] * (len(text) + 1)
    assert any(row.share == 0 for row in rows) and any(row.share == 0.5 for row in rows)


def test_evidence_is_apart_in_both_orders_and_what_does_not_fit_loses_distractors(monkeypatch):
    monkeypatch.setattr(
        cross, "WINDOW_TOKENS", 3 + 1 + 7
    )  # special tokens, the question, and seven chunks of one token
    chunks = tuple(Chunk(f"c{number}", f"text {number}") for number in range(15))
    apart = set()
    for seed in range(30):
        pooled = Pooled("q", "Who?", chunks, (0.0,) * 15, (3, 1), ((1, 3),))
        rows = {tuple(row.ids[3:-1].tolist()): row for row in drawn(pooled, seed)}
        assert 5 <= max(map(len, rows)) <= 7
        for text, row in rows.items():
            if {1, 3} <= set(text):
                backwards = text.index(1) < text.index(3)
                assert row.share == pytest.approx(0.999 if backwards else 1) and row.is_enough
                apart |= {(backwards, abs(text.index(1) - text.index(3)))}
    assert {(backwards, distance) for backwards in (True, False) for distance in range(1, 6)} <= apart


def test_the_loss_by_hand():
    logits, share, enough = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([1.0, 0.5, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    owner = torch.tensor([0, 0, 1])
    soft = np.log1p(np.exp([-2.0, 0.0, 1.0]))  # of each answer; 1 - p of the last two
    # One pair, of the first question: it holds more by .5, and its logit is larger by 2.
    expected = soft.mean() + np.log1p(np.exp(-2.0))
    assert cross.loss_of(logits, share, enough, owner).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_training_gives_an_adapter_and_is_not_done_twice(films, tmp_path, monkeypatch):
    source = EvidenceSource("films", held_out=0.3)
    config = CrossTraining(
        data=str(films), out=str(tmp_path / "out"), sources=(source,), units=("passage",),
        calibration=(EvidenceSource("films", held_out=0.3, part="held-out"),),
        epochs=1, step_tokens=256, save_every=2, logger="none", quiet=True, device="cpu", precision="fp32",
    )  # fmt: skip
    adapter = cross.train_cross(config)
    figures = json.loads((tmp_path / "out" / "training.json").read_text())["figures"]
    assert figures["films, passage"]["questions"] >= 2
    assert "films" in (adapter / "README.md").read_text()
    assert load_adapter(adapter).config.name == "minilm-cross"
    texts = ["Film 1 was made by Bob Ray. Bob Ray was born in 1901.", "It rained."]
    values = MiniLMCross(adapter=adapter).score("When was the maker of Film 1 born?", texts)
    assert values[0] > values[1]
    monkeypatch.setattr(cross, "CrossModule", None)  # whoever starts again fails
    assert cross.train_cross(config) == adapter
