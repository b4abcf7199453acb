import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import agent
from agent import CheckpointError, model_card
from tests.agent.worlds import DIM, random_agent, random_weights, toy_config


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "made" / "on-demand"
    agent.save(path, random_agent(), model_card(toy_config(), {"commit": "abc123"}))
    return path


def change_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))


def test_round_trip(folder):
    loaded = agent.load(str(folder))
    assert loaded.config == toy_config()
    features = np.linspace(-1, 1, DIM)
    assert loaded.predict(features) == random_agent().predict(features)
    assert json.loads((folder / "config.json").read_text())["format_version"] == 1
    card = (folder / "README.md").read_text()
    assert all(word in card for word in ("`toy`", "`first`, `second`", "| iterations | 1 | 64 |", "abc123"))


def test_a_checkpoint_is_replaced_whole(folder):
    other = random_agent(seed=1)
    agent.save(folder, other, "new card")
    assert (folder / "README.md").read_text() == "new card"
    np.testing.assert_array_equal(agent.load(folder).weights["reranker.bias"], other.weights["reranker.bias"])
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_leftovers_of_a_killed_save_do_no_harm(folder):
    for name in (".on-demand.tmp", ".on-demand.old"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "config.json").write_text("{")
    agent.save(folder, random_agent(), "")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_nothing_but_a_checkpoint_is_replaced(folder, tmp_path):
    (folder / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for path in (folder, tmp_path / "file"):
        with pytest.raises(CheckpointError, match="would be deleted; choose another path"):
            agent.save(path, random_agent(), "")
    assert (folder / "thesis.tex").exists()


@pytest.mark.parametrize("suffix", [".pkl", ".pickle", ".pth", ".pt", ".ckpt", ".bin"])
def test_a_pickle_is_refused(folder, suffix):
    pickle_file = (folder / "model.safetensors").rename(folder / f"model{suffix}")
    for path in (folder, pickle_file):
        with pytest.raises(CheckpointError, match=rf"model\{suffix} may be a pickle.*give the weights as"):
            agent.load(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"on-demand lacks {name}; copy"):
        agent.load(folder)


def test_a_missing_folder(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere is not a checkpoint folder; give the folder"):
        agent.load(tmp_path / "nowhere")


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe"])
def test_a_broken_config(folder, text):
    (folder / "config.json").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON.*restore it or train again"):
        agent.load(folder)


@pytest.mark.parametrize("version", [2, None, "1"])
def test_another_format_version(folder, version):
    change_config(folder, format_version=version)
    with pytest.raises(CheckpointError, match=f"format_version {version!r}, but this release reads 1; install"):
        agent.load(folder)


def test_an_older_form_works_with_a_warning(folder, caplog):
    values = json.loads((folder / "config.json").read_text())
    del values["min_lead"]
    (folder / "config.json").write_text(json.dumps({**values, "caution": 0.25}))
    assert agent.load(folder).config.min_lead == 0.25
    [record] = caplog.records
    assert "config.json is of an older form: what it calls caution is min_lead now" in record.getMessage()


def test_a_config_that_is_no_mapping(folder):
    (folder / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="format_version None"):
        agent.load(folder)


def test_an_empty_list_of_rerankers(folder):
    change_config(folder, rerankers=[])
    with pytest.raises(CheckpointError, match=r"config\.json is not a valid configuration: rerankers must"):
        agent.load(folder)


def test_weights_of_another_dimension(folder):
    change_config(folder, feature_dim=DIM + 1)
    message = r"model\.safetensors does not fit config\.json: tensor 'encoder\.0\.weight' .*\(8, 7\), got"
    with pytest.raises(CheckpointError, match=message):
        agent.load(folder)


def test_weights_of_other_names(folder):
    weights = random_weights(toy_config())
    weights["classifier.bias"] = weights.pop("reranker.bias")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing tensors \['reranker.bias'\], unknown tensors"):
        agent.load(folder)


@pytest.mark.parametrize("keep", [0, 5, 300, -1])
def test_damaged_weights(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged.*copy it again"):
        agent.load(folder)


@pytest.mark.slow
def test_weights_in_a_type_that_numpy_lacks(folder):
    import torch
    from safetensors.torch import save_file as save_torch_file

    save_torch_file({"x": torch.zeros(2, dtype=torch.bfloat16)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="BF16"):
        agent.load(folder)
