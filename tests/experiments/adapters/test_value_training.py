"""Training of values: which sets are the evidence, the fit, and the whole way on a tiny folder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from agent.training.lightning import train_module
from corag.errors import DataError, InputError
from corag.models.trained import load_adapter
from corag.rerankers.evidence.reranker import NUM_FEATURES, Ensemble, EvidenceReranker, weigh
from corag.rerankers.evidence.signals import SINGLES
from corag.text.data import DataFolder
from corag.text.units import unit_size, units
from corag.types import Chunk
from experiments.adapters.config import ValueTraining
from experiments.adapters.value import Asked, ValueModule, evidence_sets, example_of, train_value
from experiments.labels.config import LabelSource
from tests.corag.rerankers.evidence_worlds import WordEncoder, signals_of
from tests.experiments.worlds import write_folder
from tests.wandb_files import offline_runs

pytestmark = pytest.mark.slow


def test_the_evidence_of_units_is_what_people_marked_else_any_sentence_with_the_answer(tmp_path):
    texts = {"a": "Ann made it. It is long. Ann is from Ulm.", "b": "Ulm is old. Ulm lies in Varn."}
    corpus = [{"id": name, "title": name, "text": text} for name, text in texts.items()]
    asked = {"question": "Where is Ann from?", "gold": ["a", "b"], "split": "train"}
    marked = {**asked, "id": "q1", "supporting_facts": [["a", [2]], ["b", [1]]]}
    answered = {**asked, "id": "q2", "answers": ["Varn"]}
    folder = DataFolder.open(write_folder(tmp_path, corpus, [marked, answered]))
    chunks = [Chunk(name, f"{name}\n{text}", {"document": name, "title": name}) for name, text in texts.items()]
    sentences = [unit for chunk in chunks for unit in units(chunk, unit_size("sentence"))]
    by_facts, by_answer = folder.queries
    assert evidence_sets(by_facts, folder.documents, chunks) == ((0, 1),)
    assert evidence_sets(by_facts, folder.documents, chunks[:1]) == ()
    assert evidence_sets(by_facts, folder.documents, sentences) == ((2, 4),)
    # A sentence of each passage, of which one holds the answer.
    assert evidence_sets(by_answer, folder.documents, sentences) == ((0, 4), (1, 4), (2, 4))


def learnable(number, num_candidates=5):
    """The evidence is the two chunks with the highest cosines; every third question has none."""
    given = signals_of(num_candidates, seed=number)
    column, golds = SINGLES.index("cosine"), ()
    if number % 3 == 0:
        given.singles[:, column] *= 0.3
    else:
        gold = np.argsort(-given.singles[:, column])[:2]
        given.singles[gold, column] += 2
        golds = (tuple(sorted(gold.tolist())),)
    return Asked(f"q{number}", [None] * num_candidates, golds), given


def toy_training(out="", **settings):
    given = {"sources": (LabelSource(data="none"),), "epochs": 2, **settings}
    return ValueTraining(out=str(out), **{"logger": "none", "quiet": True, **given})


def test_networks_learn_which_set_is_the_evidence(tmp_path):
    config = toy_training(tmp_path, epochs=40)
    module = ValueModule([example_of(*learnable(number)) for number in range(60)], config)
    train_module(module, tmp_path, device="cpu", epochs=config.epochs, hooks=[])
    network, right = Ensemble(module.tensors()), 0
    for number in range(60, 80):
        asked, given = learnable(number)
        found = weigh(given, network)
        right += found.sets[int(found.logits.argmax())] in (asked.golds or [()])
    assert right >= 17


def test_the_loss_is_the_cross_entropy_of_the_sets_that_may_be_true():
    examples = [example_of(*learnable(number)) for number in range(3)]
    module = ValueModule(examples, toy_training()).eval()
    module.linear.data.normal_(generator=torch.Generator().manual_seed(0))
    batch, expected, first = module.batch(range(3)), [], 0
    for size, num_true in zip(batch["sizes"].tolist(), batch["num_true"].tolist(), strict=True):
        logits = (module(batch["features"])[0] + batch["corrections"])[first : first + size].detach().numpy()
        chances = np.exp([0.0, *logits])
        true = chances[1 : 1 + num_true] if num_true else chances[:1]
        expected.append(-np.log(true.sum() / chances.sum()))
        first += size
    assert float(module.losses(batch)[0].detach()) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.fixture
def config(small_data, tmp_path):
    source = LabelSource(data=small_data.name, pool="corpus", num_candidates=4)
    return toy_training(tmp_path / "out", data=str(small_data.parent), sources=(source,))


def test_a_training_gives_an_adapter_with_figures_and_is_not_done_twice(config):
    config = replace(config, logger="wandb")
    adapter = train_value(config)
    figures = json.loads((adapter.parent / "training.json").read_text())["figures"]
    assert {"most probable hypothesis is true", "calibration error", "slope"} <= set(figures)
    [run] = offline_runs(config.out)
    assert run.summary.items() >= figures.items() and "train_loss" in run.summary
    assert np.isfinite(list(figures.values())).all()
    card = (adapter / "README.md").read_text()
    assert "calibration error" in card and config.sources[0].data in card
    reranker = EvidenceReranker(adapter=adapter, encoder=WordEncoder())
    assert load_adapter(adapter).tensors["linear"].shape[1] == NUM_FEATURES
    whole = Chunk("d", "Film 3\nFilm 3 was made by Dan Orr. It is long.", {"title": "Film 3"})
    for chunks in ([whole], units(whole, unit_size("sentence"))):
        assert np.isfinite(reranker.scorer("Who made Film 3?", chunks)([(0,)])).all()
    written = (adapter / "config.json").stat().st_mtime_ns
    assert train_value(config) == adapter and (adapter / "config.json").stat().st_mtime_ns == written


def test_too_few_questions_to_learn_from_are_refused(config, monkeypatch):
    with pytest.raises(DataError):
        train_value(replace(config, sources=(replace(config.sources[0], limit=1),)))
    with pytest.raises(InputError, match="seed"):
        toy_training(seed=-1)
    # None that it is calibrated on has evidence, or every order of what it is calibrated on does.
    chunks = [Chunk("a", "Dan made it."), Chunk("b", "It is long.")]
    for kept_back in (Asked("Who paid?", chunks, (), True), Asked("Who?", chunks[:1], ((0,),), True)):
        asked = [Asked("Who made it?", chunks, ((0,),)), kept_back]
        monkeypatch.setattr("experiments.adapters.value._questions", lambda *_, asked=asked: iter(asked))
        with pytest.raises(DataError):
            train_value(config)
