"""Training the reader, end to end on a small encoder: what is learned, shipped, stopped, and gone on with."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from corag.errors import DataError
from corag.models.trained import load_adapter, merge
from corag.readers import minilm_reader
from corag.readers.span_network import SpanNetwork
from corag.text.data import DataFolder
from experiments.adapters import reader as training
from experiments.adapters.config import ReaderSource, ReaderTraining
from experiments.adapters.encoder import build, export
from experiments.adapters.reader import KIND_WEIGHT, ReaderModule, gold_cases, loss_of, train_reader
from experiments.adapters.reader_rows import collate, examples, rows
from experiments.adapters.training import calibration_error, fit_sigmoid
from experiments.data.splits import held_out
from tests.corag.models.worlds import small_bert

pytestmark = pytest.mark.slow


def small_training(data, out, **changes):
    settings = {
        "sources": (ReaderSource(data.name, held_out=0.4),),
        "min_tokens": 40,
        "max_tokens": 64,
        "rank": 4,
        "epochs": 2.0,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "decay": 0.0,
        "step_tokens": 192,
        "precision": "fp32",
        "save_every": 2,
        "logger": "none",
        "quiet": True,
    }
    return ReaderTraining(data=str(data.parent), out=str(out), **{**settings, **changes})


INPUTS = {
    "input_ids": torch.tensor([[101, 2040, 102, 3000, 4000, 102]]),
    "attention_mask": torch.ones((1, 6), dtype=torch.int64),
    "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1]]),
}


@pytest.fixture(autouse=True)
def small_encoder(monkeypatch):
    monkeypatch.setattr(training, "load_bert", small_bert)
    monkeypatch.setattr("corag.models.trained.load_bert", small_bert)


def test_merged_weights_give_the_logits_of_the_trained_ones():
    network = build(small_bert(), 4, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # updates that are not zero
        for value in network.parameters():
            if value.requires_grad:
                value += 0.1 * torch.randn(value.shape, generator=generator)
    plain = SpanNetwork(small_bert()).eval()
    merge(plain, {name: tensor.numpy() for name, tensor in export(network).items()})
    with torch.inference_mode():
        torch.testing.assert_close(plain(**INPUTS)[0], network.eval()(**INPUTS)[0], atol=1e-4, rtol=0)


def test_a_step_without_a_finite_gradient_changes_nothing(small_data):
    folder = DataFolder.open(small_data)
    module = ReaderModule(small_training(small_data, ""), examples(folder, folder.queries, repeat=1))
    optimizer = torch.optim.AdamW(module.groups(), lr=1.0)
    before = [value.clone() for value in module.parameters()]
    for factor, changes in ((float("inf"), False), (1.0, True)):
        for value in module.parameters():
            value.grad = torch.ones_like(value) * (factor if value is module.network.head.weight else 1)
        module.on_before_optimizer_step(optimizer)
        optimizer.step()
        now = list(module.parameters())
        assert all(map(torch.equal, before, now)) != changes and all(bool(value.isfinite().all()) for value in now)


def test_loss_is_the_cross_entropy_of_the_right_spans(small_data):
    folder = DataFolder.open(small_data)
    made = rows(examples(folder, folder.queries, repeat=1), small_training(small_data, ""), (0,))
    batch = collate(made[:4])
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(*batch["context"].shape, 6)))
    expected = 0.0
    for row in range(4):
        allowed = np.flatnonzero(batch["context"][row])
        for column, right in ((0, batch["starts"][row]), (1, batch["ends"][row])):
            chances = np.exp(logits[row, allowed, column].numpy())
            expected -= np.log(chances[right[allowed].numpy()].sum() / chances.sum()) / 2 / 4
    losses = loss_of(logits, batch)
    assert float(losses["span"]) == pytest.approx(expected)
    kinds = torch.log_softmax(logits[:, 0, 2:], 1)[range(4), batch["kinds"].tolist()]
    assert float(losses["kind"]) == pytest.approx(-float(kinds.mean()))
    assert float(losses["loss"]) == pytest.approx(float(losses["span"] + KIND_WEIGHT * losses["kind"]))


def test_learns_and_ships_what_it_learned(small_data, tmp_path):
    adapter = train_reader(small_training(small_data, tmp_path / "run", epochs=40.0, save_every=40))
    reader = minilm_reader.MiniLMReader(adapter=adapter, backend="torch")
    folder = DataFolder.open(small_data)
    queries = folder.split("train")
    learned = [query for query in queries if query.id not in held_out(folder, queries, 0.4)]
    assert len(learned) >= 3
    tasks = gold_cases(folder, learned)
    answers = reader.answer_many([task.question for task in tasks], [task.context for task in tasks])
    assert [answer.text for answer in answers] == [query.answers[0] for query in learned]
    card = (adapter / "README.md").read_text()
    assert f"| {small_data.name}, held out |" in card


def test_a_stopped_training_goes_on_as_if_it_had_not_been(small_data, tmp_path, monkeypatch):
    config = small_training(small_data, tmp_path / "parts")
    with monkeypatch.context() as stopping:
        step = ReaderModule.training_step

        def stop(module, batch, number):
            if module.global_step == 3:
                raise KeyboardInterrupt
            return step(module, batch, number)

        stopping.setattr(ReaderModule, "training_step", stop)
        with pytest.raises(KeyboardInterrupt):
            train_reader(config)
    steps = []
    begin = ReaderModule.on_train_batch_start
    monkeypatch.setattr(
        ReaderModule, "on_train_batch_start", lambda self, *a: steps.append(self.global_step) or begin(self, *a)
    )
    parts = train_reader(config)
    assert steps[0] == 2  # after the last state that was saved
    whole = train_reader(replace(config, out=str(tmp_path / "whole")))
    expected, found = (load_adapter(adapter).tensors for adapter in (whole, parts))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    monkeypatch.setattr(training, "load_bert", None)  # a finished one is not done again
    assert train_reader(config) == parts
    with pytest.raises(DataError):
        train_reader(replace(config, sources=(replace(config.sources[0], held_out=1.0),)))


def test_calibration_finds_the_line_that_made_the_answers():
    random = np.random.default_rng(0)
    margins = random.normal(size=20_000) * 3
    right = (random.random(20_000) < 1 / (1 + np.exp(-(0.8 * margins - 0.5)))).astype(float)
    slope, offset = fit_sigmoid(margins, right)
    assert (slope, offset) == (pytest.approx(0.8, abs=0.05), pytest.approx(-0.5, abs=0.05))
    assert calibration_error(1 / (1 + np.exp(-(slope * margins + offset))), right) < 0.02
