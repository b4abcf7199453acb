import random
import time

import pytest
import torch

from tests.agent.training_job import NUM_EPOCHS, train
from tests.processes import fork_server

pytestmark = pytest.mark.slow

WEIGHTS = "checkpoint/model.safetensors"


def epochs_done(out_dir):
    states = list(out_dir.glob("epochs-*/last.ckpt"))
    return torch.load(states[0], weights_only=True)["epoch"] + 1 if states else 0


def kill_after_epochs(context, out_dir, num_epochs, delay_s):
    process = context.Process(target=train, args=(out_dir,))
    process.start()
    while epochs_done(out_dir) < num_epochs:
        assert process.is_alive(), "the training ended before it could be killed"
        time.sleep(0.002)
    time.sleep(delay_s)
    process.kill()
    process.join()
    assert process.exitcode == -9


def test_a_killed_training_ends_with_the_bits_of_an_unbroken_one(tmp_path):
    unbroken = train(tmp_path / "unbroken")
    context, moments = fork_server(), random.Random(0)
    broken_dir = tmp_path / "broken"
    for num_epochs in (1, 4):
        kill_after_epochs(context, broken_dir, num_epochs, delay_s=moments.uniform(0, 0.01))
    done = epochs_done(broken_dir)
    assert 4 <= done < NUM_EPOCHS

    resumed = train(broken_dir)

    assert resumed.epochs_resumed == done
    assert resumed.history == unbroken.history
    assert resumed.best_epoch == unbroken.best_epoch
    assert (broken_dir / WEIGHTS).read_bytes() == (tmp_path / "unbroken" / WEIGHTS).read_bytes()
    left = {file.name for file in broken_dir.iterdir() if not file.name.startswith(".")}
    assert left == {"checkpoint", "training.json"}
