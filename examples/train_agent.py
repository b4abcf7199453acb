"""The agent of the CORAG paper (5 and 6.1), from a label table to a checkpoint.

    corag label --data my-folder --out labels.parquet
    python examples/train_agent.py --labels labels.parquet --out my-agent
    corag ask "How do I ...?" --index my-index --agent my-agent

`corag train agent` does the same with more settings, resuming, and a comparison with baselines. The network is
`agent.model`, its losses are `agent.losses`; metrics go to W&B, with WANDB_MODE=offline they stay on this machine.

Letters: `n` questions, `C` configurations in the table, `R` classes of the agent: configurations without their search
settings, in the paper its rerankers.
"""

from pathlib import Path

import numpy as np
from jsonargparse import auto_cli
from lightning.pytorch.loggers import WandbLogger

import agent
from experiments.data.splits import divide
from experiments.labels.table import fallback_of, read_labels

LEAD = 1.1
"""A question is learnt from if its best class has more than this many times the ROUGE-L of the next (paper 5.2.2)."""


def train(labels: Path, out: Path, epochs: int = 60, seed: int = 0) -> agent.ConfigurationAgent:
    """Train an agent on a label table, save its checkpoint below `out` and return it; `seed` gives the same bits."""
    table = read_labels(str(labels))
    table = table.of(np.isfinite(table.measures["rougeL"]).all(axis=1))
    # Questions about one document are in one part. Those of the last are for whoever compares agents.
    parts = divide(table.data, table.group, (0.6, 0.1, 0.3))

    # Section 5.2.2: the best class of each question, and the settings with which it is best. Of equals, the
    # configuration with the fewest tokens, then orders; the settings are the mean of all that are as good.
    rouge, classes = table.measures["rougeL"], table.classes()
    assert classes.settings is not None, "label a grid of search settings"
    best = np.lexsort((table.measures["orders_scored"], table.measures["cost_tokens"], -rouge), axis=1)[:, 0]
    label = classes.label[best]
    tied = (rouge >= rouge.max(axis=1, keepdims=True)) & (classes.label == label[:, None])
    settings = (tied @ classes.settings / tied.sum(axis=1, keepdims=True)).astype(np.float32)
    columns = [rouge[:, classes.label == number].max(axis=1) for number in range(len(classes.names))]
    quality = np.stack(columns, axis=1)
    ranked = np.sort(quality, axis=1)
    clear = ranked[:, -1] > LEAD * ranked[:, max(0, len(columns) - 2)]
    targets = agent.TrainingTable(
        table.features(("query",)), label, clear.astype(np.float32), table.ids, quality.astype(np.float32), settings
    )

    # Section 5.1: layers of 512, 256 and 128 numbers, shared by both questions of a pair; two heads over them.
    grid = np.array([fallback_of(name).settings for name in table.configurations])
    low, high = grid.min(axis=0).tolist(), grid.max(axis=0).tolist()
    ranges = agent.Ranges((int(low[0]), int(high[0])), (low[1], high[1]), (low[2], high[2]))
    single = table.configurations[int(rouge[parts != 2].mean(axis=0).argmax())]
    config = agent.AgentConfig(
        classes.names, fallback_of(single), targets.features.shape[1], table.embedder,
        hidden=(512, 256), map_dim=128, ranges=ranges,
    )  # fmt: skip

    # Equations 8 to 11 by Adam: the sum of a contrastive loss, a cross-entropy and a squared error; pairs within a
    # batch. The last epoch is kept.
    training = agent.TrainConfig(lr=1e-3, batch_size=32, epochs=epochs, margin=1.0, seed=seed, keep="last")
    wandb = WandbLogger(project="corag-agent", name=out.name, save_dir=out.parent)
    report = agent.fit(
        targets.of(clear & (parts == 0)), targets.of(parts == 1), config, training, out, device="cpu",
        logger=lambda _: wandb,
        facts={"labels": labels.name, "questions learnt from": int((clear & (parts == 0)).sum())},
    )  # fmt: skip
    wandb.experiment.log_artifact(str(report.checkpoint), name="checkpoint", type="model")
    wandb.experiment.finish()
    return report.agent


if __name__ == "__main__":
    auto_cli(train, as_positional=False)
