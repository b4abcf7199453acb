"""Training the reader, end to end on a small encoder: what is learned, shipped, stopped, and gone on with."""

import json
from dataclasses import replace

import jsonargparse
import numpy as np
import pytest
import torch

from corag.errors import DataError, InputError, ModelError
from corag.models.trained import load_adapter
from corag.models.trained.low_rank import merge
from corag.readers import minilm_reader
from corag.readers.span_network import SpanNetwork
from corag.text.data import DataFolder
from experiments.adapters.calibration import calibration_error, fit_sigmoid, separation
from experiments.adapters.reader import loop as reader_loop
from experiments.adapters.reader.config import ReaderTraining
from experiments.adapters.reader.data import collate, examples, rows
from experiments.adapters.reader.loop import backward, learning_rate
from experiments.adapters.reader.network import build, export, loss_of
from experiments.adapters.reader.state import Average
from experiments.adapters.reader.train import gold_cases, train_reader
from experiments.data.splits import held_out
from tests.experiments.adapters.reader_worlds import small_bert, small_training
from tests.paths import ROOT

pytestmark = pytest.mark.slow

INPUTS = {name: torch.tensor([[101, 2040, 102, 3000, 4000, 102]]) for name in ("input_ids",)} | {
    "attention_mask": torch.ones((1, 6), dtype=torch.int64),
    "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1]]),
}


@pytest.fixture(autouse=True)
def small_encoder(monkeypatch):
    monkeypatch.setattr(reader_loop, "load_bert", small_bert)
    monkeypatch.setattr(minilm_reader, "load_bert", small_bert)


@pytest.fixture(scope="module")
def made(small_data):
    folder = DataFolder.open(small_data)
    return rows(examples(folder, folder.queries, repeat=1), small_training(small_data, "").rows, (0,))


@pytest.fixture
def trained(small_data, tmp_path):
    return train_reader(small_training(small_data, tmp_path / "run"))


def jolted(rank=4):
    """A network in training whose updates are not zero."""
    network = build(small_bert(), rank, seed=0, dropout=0.0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in network.parameters():
            if value.requires_grad:
                value += 0.1 * torch.randn(value.shape, generator=generator)
    return network


def test_merged_weights_give_the_logits_of_the_trained_ones():
    network = jolted()
    plain = SpanNetwork(small_bert()).eval()
    merge(plain, {name: tensor.numpy() for name, tensor in export(network).items()})
    with torch.inference_mode():
        torch.testing.assert_close(plain(**INPUTS)[0], network.eval()(**INPUTS)[0], atol=1e-4, rtol=0)


def test_without_training_the_encoder_is_unchanged():
    network = build(small_bert(), 4, seed=0, dropout=0.0).eval()
    with torch.inference_mode():
        found = network.encoder(**INPUTS).last_hidden_state
        torch.testing.assert_close(found, small_bert()(**INPUTS).last_hidden_state, atol=1e-5, rtol=0)


def test_only_what_is_shipped_is_trained():
    names = set(export(build(small_bert(), 4, seed=0, dropout=0.0)))
    assert "encoder.encoder.layer.0.attention.self.query.weight.down" in names
    assert "encoder.embeddings.token_type_embeddings.weight" in names
    assert {"head.weight", "head.bias"} <= names
    assert not any("word_embeddings" in name or "original" in name for name in names)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"head.weights": np.zeros((6, 32))}, r"'head\.weights' of shape \(6, 32\)"),
        ({"head.bias": np.zeros(5)}, r"'head\.bias' of shape \(5,\)"),
        ({"head.weight.down": np.zeros((2, 32))}, r"'head\.weight' is not a pair"),
        ({"head.weight.down": np.zeros((2, 32)), "head.weight.up": np.zeros((6, 3))}, r"'head\.weight' is not a pair"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tensors, message):
    with pytest.raises(ModelError, match=message):
        merge(SpanNetwork(small_bert()), tensors)


def test_loss_is_the_cross_entropy_of_the_right_spans(made):
    batch = collate(made[:4])
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(*batch.context.shape, 6)))
    expected = 0.0
    for row in range(4):
        allowed = np.flatnonzero(batch.context[row])
        for column, right in ((0, batch.starts[row]), (1, batch.ends[row])):
            chances = np.exp(logits[row, allowed, column].numpy())
            expected -= np.log(chances[right[allowed]].sum() / chances.sum()) / 2 / 4
    losses = loss_of(logits, batch, kind_weight=0.5)
    assert float(losses["span"]) == pytest.approx(expected)
    kinds = torch.log_softmax(logits[:, 0, 2:], 1)[range(4), batch.kinds.tolist()]
    assert float(losses["kind"]) == pytest.approx(-float(kinds.mean()))
    assert float(losses["loss"]) == pytest.approx(float(losses["span"] + 0.5 * losses["kind"]))


def test_shares_of_a_batch_add_up_to_its_gradient(made, small_data):
    gradients = []
    for processes in (1, 3):
        network = jolted()
        for rank in range(processes):
            backward(network, made[:7], rank, small_training(small_data, "", processes=processes))
        gradients.append(network.head.weight.grad)
    torch.testing.assert_close(*gradients)


def test_the_learning_rate_rises_stays_and_falls(small_data):
    config = small_training(small_data, "", learning_rate=1.0, warmup_steps=4, decay=0.5, epochs=2.0)
    assert [learning_rate(config, step, 0.0) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [learning_rate(config, 100, done) for done in (0.5, 1.0, 1.5, 2.0)] == [1.0, 1.0, 0.5, 0.0]


def test_learns_and_ships_what_it_learned(small_data, tmp_path):
    config = small_training(small_data, tmp_path / "run", epochs=60.0, validate_every=5)
    report = train_reader(config)
    progress = json.loads((tmp_path / "run" / "training.json").read_text())["progress"]
    assert progress["epoch"] == 60
    reader = minilm_reader.MiniLMReader(adapter=report.adapter, backend="torch")
    folder = DataFolder.open(small_data)
    queries = folder.split("train")
    learned = [query for query in queries if query.id not in held_out(folder, queries, 0.4)]
    assert len(learned) >= 3
    tasks = gold_cases(folder, learned)
    answers = reader.answer_many([task.question for task in tasks], [task.context for task in tasks])
    assert [answer.text for answer in answers] == [query.answers[0] for query in learned]
    card = (report.adapter / "README.md").read_text()
    assert f"| {small_data.name}, dev |" in card
    assert "{" not in card


def test_a_stopped_training_goes_on_as_if_it_had_not_been(small_data, tmp_path):
    whole = train_reader(small_training(small_data, tmp_path / "whole", dropout=0.1))
    train_reader(small_training(small_data, tmp_path / "parts", dropout=0.1, epochs=0.7))
    parts = train_reader(small_training(small_data, tmp_path / "parts", dropout=0.1))
    expected, found = (load_adapter(report.adapter).tensors for report in (whole, parts))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_a_finished_training_is_not_done_again(small_data, tmp_path, trained, monkeypatch):
    monkeypatch.setattr(reader_loop, "load_bert", None)
    assert train_reader(small_training(small_data, tmp_path / "run")) == trained


def test_goes_on_from_an_adapter(small_data, tmp_path, trained):
    config = small_training(
        small_data, tmp_path / "more", init_from=str(trained.adapter), epochs=0.01, learning_rate=1e-9
    )
    more = train_reader(config)
    before, after = (load_adapter(report.adapter).tensors for report in (trained, more))
    for name, tensor in before.items():
        np.testing.assert_allclose(after[name], tensor, atol=1e-6, err_msg=name)
    first, second = ((report.adapter / "README.md").read_text() for report in (trained, more))
    assert "went on with" not in first
    assert f"weights {load_adapter(trained.adapter).weights_sha256[:12]}) that was made so" in second
    facts = first.split("## How it was made\n\n")[1].split("\n\n## Licence")[0]
    assert facts in second and second.count("| commit |") == 2


def test_sentences_are_learned_from_and_measured(small_data, tmp_path):
    rows_of_sentences = replace(small_training(small_data, "").rows, sentences=0.5)
    report = train_reader(small_training(small_data, tmp_path / "run", rows=rows_of_sentences))
    name = small_data.name
    assert report.figures[f"{name}, dev, by sentence"]["n"] <= report.figures[f"{name}, dev"]["n"]
    card = (report.adapter / "README.md").read_text()
    assert f"| {name}, held out, by sentence |" in card and f"| {name} by sentence |" in card
    assert "lacking" not in report.figures and "sentences=0.5" in card


def test_an_adapter_of_other_sizes_is_refused(small_data, tmp_path, trained):
    with pytest.raises(ModelError, match="rank"):
        train_reader(small_training(small_data, tmp_path / "more", init_from=str(trained.adapter), rank=5))


def test_a_state_of_another_training_is_passed_over(small_data, tmp_path, trained, caplog):
    train_reader(small_training(small_data, tmp_path / "run", seed=1))
    assert "other data or settings" in caplog.text


def test_sources_without_answers_are_refused(small_data, tmp_path):
    config = small_training(small_data, tmp_path / "run")
    with pytest.raises(DataError, match="no question"):
        train_reader(replace(config, sources=(replace(config.sources[0], held_out=1.0),)))


@pytest.mark.parametrize("change", [{"rank": 0}, {"epochs": 0}, {"decay": 1.5}])
def test_bad_settings_are_named(small_data, change):
    (name,) = change
    with pytest.raises(InputError, match=name):
        small_training(small_data, "", **change)


def test_calibration_finds_the_line_that_made_the_answers():
    random = np.random.default_rng(0)
    margins = random.normal(size=20_000) * 3
    right = (random.random(20_000) < 1 / (1 + np.exp(-(0.8 * margins - 0.5)))).astype(float)
    slope, offset = fit_sigmoid(margins, right)
    assert (slope, offset) == (pytest.approx(0.8, abs=0.05), pytest.approx(-0.5, abs=0.05))
    assert calibration_error(1 / (1 + np.exp(-(slope * margins + offset))), right) < 0.02


def test_calibration_error_by_hand():
    # Two bins: says 0.1 and is never right; says 0.9 and is right half of the time.
    error = calibration_error(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 0.0, 1.0, 0.0]), bins=2)
    assert error == pytest.approx((0.1 + 0.4) / 2)


def test_separation_counts_pairs():
    assert separation(np.array([2.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx((1 + 1 + 0 + 0.5) / 4)


def test_the_shipped_configuration_is_valid():
    parser = jsonargparse.ArgumentParser()
    parser.add_argument("--reader", type=ReaderTraining)
    file = ROOT / "experiments/configs/adapters/reader.yaml"
    config = parser.instantiate(parser.parse_path(file)).reader
    assert {source.data: source.held_out for source in config.sources} == {
        "squad": 0.03, "nq_qed": 0.2, "hotpotqa": 0.0, "2wikimultihopqa": 0.2, "musique": 0.2, "pubmedqa": 0.2,
    }  # fmt: skip
    assert {source.repeat for source in config.sources if source.data in ("hotpotqa", "musique")} == {3}
    assert config.rows.max_tokens == 176


def test_the_average_follows_and_gives_back():
    tensor = torch.zeros(1)
    average = Average([tensor], 0.75)
    tensor += 8.0
    average.update(step=1000)
    assert average.values[0].item() == pytest.approx(2.0)
    with average.applied():
        assert tensor.item() == pytest.approx(2.0)
    assert tensor.item() == 8.0
    average.apply()
    assert tensor.item() == pytest.approx(2.0)


def test_the_first_steps_do_not_linger_in_the_average():
    tensor = torch.zeros(1)
    average = Average([tensor], 0.999)
    tensor += 10.0
    average.update(step=0)
    assert average.values[0].item() == pytest.approx(9.0)
