"""The agent of the CORAG paper (5 and 6.1), from a label table to a checkpoint.

    corag label --data my-folder --out labels.parquet
    python examples/train_agent.py --labels labels.parquet --out my-agent
    corag ask "How do I ...?" --index my-index --agent my-agent

`corag train agent` does the same with more settings, resuming, and a comparison with baselines. The network is
`agent.model`, its losses are `agent.losses`, what is best for a question says `experiments.agents.targets`; metrics go
to W&B, with WANDB_MODE=offline they stay on this machine.
"""

from pathlib import Path

from jsonargparse import auto_cli
from lightning.pytorch.loggers import WandbLogger

import agent
from experiments.agents.targets import TargetConfig, make_targets, training_targets
from experiments.agents.train import TEST, TRAIN, VAL, TrainAgentConfig, agent_config_of, divided, known_labels
from experiments.labels.table import read_labels


def train(labels: Path, out: Path, epochs: int = 60, seed: int = 0) -> agent.ConfigurationAgent:
    """Train an agent on a label table, save its checkpoint below `out` and return it; `seed` gives the same bits."""
    # Section 5.2.2: the best class of each question by the ROUGE-L of the answer, at no price, and the settings with
    # which it is best. A question counts if its best class leads the next by more than 10%.
    paper = TargetConfig(metric="rougeL", price=0.0, margin=0.1)
    config = TrainAgentConfig(str(labels), str(out), features="query", target=paper)
    table = known_labels(read_labels(config.labels), config)
    # Questions about one document are in one part. Those of the last are for whoever compares agents.
    parts = divided(table, config)
    learned_from = training_targets(table.of(parts == TRAIN), paper, config.parts)
    validation = make_targets(table.of(parts == VAL), paper, config.parts)
    # Section 5.1: layers of 512, 256 and 128 numbers, shared by both questions of a pair; two heads over them.
    agent_config = agent_config_of(table.of(parts != TEST), config)
    # Equations 8 to 11 by Adam: the sum of a contrastive loss, a cross-entropy and a squared error; pairs within a
    # batch. The last epoch is kept.
    training = agent.TrainConfig(lr=1e-3, batch_size=32, epochs=epochs, margin=1.0, seed=seed, keep="last")
    wandb = WandbLogger(project="corag-agent", name=out.name, save_dir=out.parent)
    report = agent.fit(learned_from, validation, agent_config, training, out, device="cpu", logger=lambda _: wandb)
    wandb.experiment.log_artifact(str(report.checkpoint), name="checkpoint", type="model")
    wandb.experiment.finish()
    return report.agent


if __name__ == "__main__":
    auto_cli(train, as_positional=False)
