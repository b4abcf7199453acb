"""The adapter folder: what was saved is read; what is not whole, or not for here, is refused."""

import json

import numpy as np
import pytest

from common.checkpoint import CARD_FILE, WEIGHTS_FILE
from common.storage import CONFIG_FILE, read_sealed, seal_again
from corag.errors import ModelError
from corag.models.trained import FOLDER, Adapter, load_adapter, save_adapter

SETTINGS = {"window_tokens": 288, "names": ["a", "b"]}


@pytest.fixture
def folder(tmp_path):
    tensors = {"weight": np.arange(6, dtype=np.float16).reshape(2, 3).T, "bias": np.zeros(0, dtype=np.float32)}
    save_adapter(tmp_path / "toy", Adapter("toy", "linear", SETTINGS, tensors), "# Toy\n")
    return tmp_path / "toy"


def test_what_was_saved_is_read(folder):
    adapter = load_adapter(folder, "linear")
    assert adapter[:3] == ("toy", "linear", SETTINGS)
    assert adapter.tensors["weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert adapter.tensors["weight"].dtype == np.float16
    assert adapter.tensors["bias"].shape == (0,)
    assert (folder / CARD_FILE).read_text() == "# Toy\n"
    assert sorted(file.name for file in folder.parent.iterdir()) == ["toy"]


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE, CARD_FILE])
def test_a_bit_that_flipped_is_noticed_anywhere(folder, name):
    whole = (folder / name).read_bytes()
    for at in range(len(whole)):
        (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        with pytest.raises(ModelError, match="toy"):
            load_adapter(folder)
    (folder / name).write_bytes(whole)
    assert load_adapter(folder).settings == SETTINGS


@pytest.mark.parametrize("changes", [{"format_version": 2}, {"base_sha256": "0" * 64}, {"form": "trees"}, None])
def test_another_format_encoder_or_form_is_refused(folder, changes):
    values = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(values | changes if changes else []))
    if changes:
        seal_again(folder)
    with pytest.raises(ModelError, match="toy"):
        load_adapter(folder, "linear")


@pytest.mark.parametrize("shipped", sorted(path.parent.name for path in FOLDER.glob("*/config.json")))
def test_what_ships_is_sealed(shipped):
    """After an edit of a card: python -m common.storage checkpoints/NAME."""
    _, hashes = read_sealed(FOLDER / shipped)
    assert hashes.keys() == {path.name for path in (FOLDER / shipped).iterdir()}
