"""Training of values: pools, fit, and the whole way on a tiny folder."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import experiments.adapters.value as training
from corag.errors import DataError
from corag.models.cached import MiniLMEmbedder
from corag.models.trained import load_adapter
from corag.rerankers.evidence.hypotheses import NUM_FEATURES, weigh
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.signals import PAIRS, SINGLES
from corag.text.data import DataFolder
from corag.text.units import unit_size, units
from corag.types import Chunk
from experiments.adapters.config import EvidenceSource, ValueTraining
from experiments.adapters.pools import Pooled, cut, open_folder, pools, questions_of
from experiments.adapters.training import fit
from experiments.adapters.value_fit import (
    ValueBatches,
    ValueModule,
    example_of,
    fit_networks,
    fit_order,
    order_accuracy,
)
from tests.corag.rerankers.evidence_worlds import WordEncoder, signals_of
from tests.experiments.adapters.conftest import PEOPLE
from tests.experiments.worlds import write_folder
from tests.wandb_files import offline_runs

pytestmark = pytest.mark.slow

SMALL = {"hidden": 4, "epochs": 2}


def offered(films, **settings):
    source = EvidenceSource("films", **{"held_out": 0.0, **settings})
    folder = DataFolder.open(films / "films")
    return pools(folder, MiniLMEmbedder(encoder=WordEncoder()), source, questions_of(folder, source))


def test_unanswerable_ones_have_the_same_candidates_without_the_evidence(films):
    whole = offered(films, unanswerable=0.0)
    both = offered(films, unanswerable=0.99)
    assert both[: len(whole)] == whole
    lacking = both[len(whole) :]
    assert lacking
    for pooled in lacking:
        assert pooled.golds == pooled.ordered == ()
        assert len(pooled.chunks) == 4


@pytest.mark.parametrize(("within", "expected"), [("article", "even"), ("corpus", "any")])
def test_candidates_from_article_or_corpus_hold_the_evidence_and_the_nearest(films, within, expected):
    pooled = offered(films, within=within, num_candidates=6, unanswerable=0.0)
    assert len(pooled) == len(PEOPLE)
    assert all(len(one.chunks) == 6 and len(one.golds[0]) == 2 for one in pooled)
    numbers = {int(chunk.id[1:]) % 2 for chunk in pooled[0].chunks}
    assert numbers == {0} if expected == "even" else {0, 1}


def test_long_documents_are_cut_and_spans_of_them_are_found_in_their_passages(tmp_path):
    text = " ".join(f"Sentence number {number} is about thing {number}." for number in range(40))
    start = text.index("Sentence number 20")
    span = f"book#{start}-{start + len('Sentence number 20 is about thing 20.')}"
    query = {"id": "q", "question": "What is sentence 20 about?", "gold": [span], "split": "train"}
    write_folder(tmp_path, [{"id": "book", "title": "Things", "text": text}], [query])
    source = EvidenceSource(str(tmp_path), held_out=0.0, within="corpus", passage_tokens=60, unanswerable=0.0)
    folder = open_folder(source, "")
    assert "".join(document.text for document in folder.documents.values()) == text
    (query,) = questions_of(folder, source)
    (pooled,) = pools(folder, MiniLMEmbedder(encoder=WordEncoder()), source, [query])
    (gold,) = (pooled.chunks[index] for index in pooled.golds[0])
    assert "thing 20." in gold.text
    of_sentences = cut(pooled, query, folder, unit_size("sentence"))
    ((index,),) = of_sentences.golds
    assert of_sentences.chunks[index].text.endswith("Sentence number 20 is about thing 20.")


def asked(number, golds=(), ordered=()):
    return Pooled(f"q{number}", "?", (), (), ordered, golds)


def learnable(number, max_size=3, weight=1.0, num_candidates=5):
    """The evidence is the two chunks with the highest cosines; every third question has none."""
    given = signals_of(num_candidates, seed=number)
    column = SINGLES.index("cosine")
    if number % 3 == 0:
        given.singles[:, column] *= 0.3
        return example_of(asked(number), given, max_size, weight=weight)
    gold = np.argsort(-given.singles[:, column])[:2]
    given.singles[gold, column] += 2
    return example_of(asked(number, (tuple(sorted(gold.tolist())),)), given, max_size, weight=weight)


def toy_training(out="", **settings):
    return ValueTraining(
        name="toy", out=str(out), sources=(EvidenceSource("none"),), logger="none", quiet=True, **{**SMALL, **settings}
    )


def right(ensemble, numbers):
    """How many questions have the true set as the most likely one."""
    examples = [learnable(number) for number in numbers]
    found = [weigh(example.signals, 3, ensemble) for example in examples]
    best = [hypotheses.sets[int(hypotheses.logits.argmax())] for hypotheses in found]
    return sum(chosen in (example.pooled.golds or [()]) for chosen, example in zip(best, examples, strict=True))


def test_networks_learn_which_set_is_the_evidence_each_from_its_own_questions(tmp_path):
    tables = [learnable(number) for number in range(60)]
    counts = np.ones((60, 2))
    counts[:, 1] = 0
    counts[0, 1] = 1  # the second network has one question
    config = toy_training(tmp_path, hidden=8, epochs=24)
    module = fit_networks(ValueBatches(tables, counts, 0), (1, 1), config, partial(fit, config, tmp_path, None), "cpu")
    whole, poor = (module.ensemble(slice(number, number + 1)) for number in (0, 1))
    assert right(whole, range(60, 80)) >= 17 > right(poor, range(60, 80))


def test_the_loss_is_the_cross_entropy_of_the_sets_that_may_be_true():
    tables = [learnable(number, 2, number + 1.0) for number in range(3)]
    batches = ValueBatches(tables, np.ones((3, 1)), seed=0)
    module = ValueModule(batches, (0,), toy_training()).eval()
    module.linear.data.normal_(generator=torch.Generator().manual_seed(0))
    [batch] = batches.epoch(0)
    expected, first = [], 0
    for size, num_true in zip(batch["sizes"].tolist(), batch["num_true"].tolist(), strict=True):
        logits = (module(batch["features"])[0] + batch["corrections"])[first : first + size].detach().numpy()
        chances = np.exp([0.0, *logits])
        true = chances[1 : 1 + num_true] if num_true else chances[:1]
        expected.append(-np.log(true.sum() / chances.sum()))
        first += size
    weights = batch["weights"][:, 0].numpy()
    assert sorted(weights.tolist()) == [1.0, 2.0, 3.0]
    assert float(module.losses(batch).detach()) == pytest.approx(np.average(expected, weights=weights), rel=1e-5)


def test_the_reading_order_is_learnt_from_pairs():
    def ordered(number):
        given = signals_of(3, seed=number)
        link = PAIRS.index("link")
        given.pairs[0, 2, link], given.pairs[2, 0, link] = 1.0, 0.0
        return example_of(asked(number, ((0, 2),), (0, 2)), given, 2)

    weights = fit_order([ordered(number) for number in range(30)])
    found = order_accuracy([ordered(number) for number in range(30, 60)], weights)
    assert found == {"pairs": 30, "in order": pytest.approx(1.0, abs=0.1)}
    assert weights.argmax() == len(SINGLES) + PAIRS.index("link")
    assert not fit_order([]).any()


@pytest.fixture
def config(films, tmp_path):
    return ValueTraining(
        name="toy",
        data=str(films),
        out=str(tmp_path / "out"),
        sources=(EvidenceSource("films", held_out=0.25, unanswerable=0.5),),
        max_size=2,
        order_sources=("films",),
        **SMALL,
        logger="none",
        quiet=True,
    )


def test_a_training_gives_an_adapter_with_figures_and_is_not_done_twice(config, monkeypatch):
    monkeypatch.setattr(training, "minilm_encoder", WordEncoder)
    held_out = replace(config.sources[0], part="held-out")
    config = replace(config, units=("passage", "sentence"), calibration=(held_out,), logger="wandb")
    adapter = training.train_value(config)
    figures = json.loads((adapter.parent / "training.json").read_text())["figures"]
    assert {"most probable hypothesis is true", "calibration error", "slope"} <= set(figures)
    [run] = offline_runs(config.out)
    assert run.summary.items() >= figures.items() and {"floor_loss", "train_loss"} <= run.summary.keys()
    assert np.isfinite(list(figures.values())).all()
    card = (adapter / "README.md").read_text()
    assert "calibration error" in card and "films" in card
    assert load_adapter(adapter).config.name == "toy"
    assert load_adapter(adapter.parent / "left-out" / "part 0").config.name == "toy"
    reranker = EvidenceReranker(adapter=adapter, encoder=WordEncoder())
    assert reranker.parts.network.linear.shape[1] == NUM_FEATURES
    whole = Chunk("d", "Film 3\nFilm 3 was made by Dan Orr. It is long.", {"title": "Film 3"})
    for chunks in ([whole], units(whole, unit_size("sentence"))):
        assert np.isfinite(reranker.scorer("Who made Film 3?", chunks)([(0,)])).all()
    monkeypatch.setattr(training, "minilm_encoder", None)  # whoever starts again fails
    assert training.train_value(config) == adapter


def test_what_cannot_be_learned_from_is_refused(config, monkeypatch):
    monkeypatch.setattr(training, "minilm_encoder", WordEncoder)
    source = replace(config.sources[0], unanswerable=0.0)
    for changes in (
        {"max_size": 1, "sources": (source,)},  # the evidence is two passages
        {"sources": (replace(source, limit=1),)},  # one question cannot be left out and learned from
        {"sources": (replace(source, held_out=1.0),)},
    ):
        with pytest.raises(DataError):
            training.train_value(replace(config, **changes))
