"""A training that the kill test runs in a process of its own."""

from pathlib import Path

from agent import fit
from tests.agent.worlds import toy_config, toy_table, toy_train_config

NUM_EPOCHS = 12


def train(out_dir: Path):
    return fit(
        toy_table(),
        toy_table(20, seed=1, prefix="val"),
        toy_config(),
        toy_train_config(epochs=NUM_EPOCHS),
        out_dir,
    )
