"""The agent of the CORAG paper (5 and 6.1) in one file: from a label table to a checkpoint.

    corag label --data my-folder --out labels.parquet
    python examples/train_agent.py --labels labels.parquet --out my-agent
    corag ask "How do I ...?" --index my-index --agent my-agent

It learns what `corag train --recipe paper` learns, to the bit, with nothing between the paper's equations and
Lightning. Metrics go to W&B; WANDB_MODE=offline keeps them on this machine. What the command adds is left out here: a
choice of features and targets, validation, resuming, the comparison with baselines.

Letters: `n` questions, `C` configurations in the table, `R` classes of the agent: configurations without their search
settings, in the paper its rerankers.
"""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pyarrow.parquet
import torch
from jsonargparse import auto_cli
from lightning.pytorch.loggers import WandbLogger
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import agent
from agent.configuration import Configuration
from corag.naming import parse
from experiments.data.splits import divide

HIDDEN, MAP_DIM = (512, 256), 128
LR, BATCH_SIZE, MARGIN = 1e-3, 32, 1.0
LEAD = 1.1
"""A question is learnt from if its best class has more than this many times the ROUGE-L of the next (paper 5.2.2)."""


@dataclass(frozen=True)
class Table:
    """What each configuration gave on each question.

    Attributes:
        questions: Embeddings, float32 `[n, d]`.
        group: Questions of one group share documents and are never on both sides of a division, `[n]`.
        data: Data folder of each question, `[n]`.
        rouge: ROUGE-L of the answer, `[n, C]`.
        tokens: Tokens of the selection, `[n, C]`.
        orders: Orders that the search scored, `[n, C]`.
        classes: Names of the classes, `R`.
        of_class: Class of each configuration, `[C]`.
        settings: Iterations, c and lambda of each configuration, `[C, 3]`.
        embedder: Name of the embedder of the questions.
    """

    questions: NDArray[np.float32]
    group: list[str]
    data: list[str]
    rouge: NDArray[np.float64]
    tokens: NDArray[np.float64]
    orders: NDArray[np.float64]
    classes: tuple[str, ...]
    of_class: NDArray[np.int64]
    settings: NDArray[np.float64]
    embedder: str


def read_table(path: Path) -> Table:
    """Read what `corag label` wrote: a row a question and configuration, a question's embedding in its first row."""
    file = pyarrow.parquet.read_table(path)
    rows = file.to_pylist()
    # A question counts if no configuration failed on it and all gave an answer.
    incomplete = {(row["data"], row["query"]) for row in rows if row["error"] or row["rougeL"] is None}
    rows = [row for row in rows if (row["data"], row["query"]) not in incomplete]
    firsts = [row for row in rows if row["query_vector"] is not None]
    questions = {(row["data"], row["query"]): number for number, row in enumerate(firsts)}
    configurations = {name: number for number, name in enumerate(dict.fromkeys(row["configuration"] for row in rows))}
    measures = {
        name: np.zeros((len(questions), len(configurations))) for name in ("rougeL", "cost_tokens", "orders_scored")
    }
    for row in rows:
        cell = questions[row["data"], row["query"]], configurations[row["configuration"]]
        for name, values in measures.items():
            values[cell] = row[name]
    names, settings = zip(*map(without_search, configurations), strict=True)
    classes = tuple(dict.fromkeys(names))
    return Table(
        np.array([row["query_vector"] for row in firsts], dtype=np.float32),
        [row["group"] for row in firsts],
        [row["data"] for row in firsts],
        measures["rougeL"],
        measures["cost_tokens"],
        measures["orders_scored"],
        classes,
        np.array([classes.index(name) for name in names]),
        np.array(settings, dtype=np.float64),
        json.loads(file.schema.metadata[b"corag"])["embedder"],
    )


def without_search(configuration: str) -> tuple[str, tuple[float, float, float]]:
    """Return the class of a configuration, and what the search took: iterations, c and lambda of eq. 5."""
    part = parse(configuration)
    settings = dict(part.settings)
    search = settings.pop("search")
    numbers = search["iterations"], search["exploration"], settings.pop("cost_weight")
    return str(Configuration(part.name, settings)), numbers


def best_of(table: Table) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Return each question's best class, `[n]`, the best settings of that class, `[n, 3]`, and who is learnt from."""
    # Of equals, the configuration with the fewest tokens, then orders.
    best = np.lexsort((table.orders, table.tokens, -table.rouge), axis=1)[:, 0]
    label = table.of_class[best]
    # Searches with other settings often find the same order: the mean of all that are as good.
    tied = (table.rouge >= table.rouge.max(axis=1, keepdims=True)) & (table.of_class == label[:, None])
    settings = tied @ table.settings.astype(np.float32) / tied.sum(axis=1, keepdims=True)
    columns = [table.rouge[:, table.of_class == number].max(axis=1) for number in range(len(table.classes))]
    ranked = np.sort(np.stack(columns, axis=1), axis=1)
    return label, settings.astype(np.float32), ranked[:, -1] > LEAD * ranked[:, max(0, len(columns) - 2)]


class Network(nn.Module):  # type: ignore[misc]
    """The encoder, shared by both questions of a pair, and its two heads (paper 5.1)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        sizes = (inputs, *HIDDEN, MAP_DIM)
        self.encoder = nn.ModuleList(nn.Linear(size, after) for size, after in pairwise(sizes))
        self.choice = nn.Linear(MAP_DIM, classes)
        self.settings = nn.Linear(MAP_DIM, 3)

    def forward(self, questions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return feature maps, `[b, MAP_DIM]`, logits of the classes, `[b, R]`, and settings from 0 to 1, `[b, 3]`."""
        maps = questions
        for layer in self.encoder:
            maps = layer(maps).relu()
        settings = self.settings(maps).sigmoid()
        return maps, self.choice(maps), settings


def contrastive(maps: Tensor, label: Tensor) -> Tensor:
    """Eq. 10: all pairs of the batch; those with the same best class attract, the others repel up to the margin.

    The paper leaves F_con open; this is the form of Hadsell et al. (2006), each kind of pair averaged on its own.
    """
    pairs = torch.triu(torch.ones(len(label), len(label)), diagonal=1)
    same = label[:, None] == label[None, :]
    squared = (maps[:, None] - maps[None, :]).square().sum(dim=-1)
    apart = MARGIN - squared.clamp_min(1e-12).sqrt()  # the square root has no gradient at 0
    positive, negative = pairs * same, pairs * ~same
    loss = (squared * positive).sum() / positive.sum().clamp_min(1)
    return loss + (apart.relu().square() * negative).sum() / negative.sum().clamp_min(1)


class Training(pl.LightningModule):  # type: ignore[misc]
    """Eq. 11: the sum of the three losses, by Adam; the paper names no optimizer."""

    def __init__(self, rows: tuple[Tensor, Tensor, Tensor], classes: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.network = Network(rows[0].shape[1], classes)
        self.rows, self.seed = rows, seed

    def train_dataloader(self) -> DataLoader:
        """Return the batches of this epoch; pairs are formed within a batch."""
        order = torch.from_numpy(np.random.default_rng((self.seed, self.current_epoch)).permutation(len(self.rows[0])))
        batches = [tuple(column[part] for column in self.rows) for part in order.split(BATCH_SIZE)]
        return DataLoader(batches, batch_size=None)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        questions, label, settings = batch
        maps, logits, predicted = self.network(questions)
        losses = {
            "contrastive": contrastive(maps, label),
            "choice": functional.cross_entropy(logits, label, reduction="none").mean(),  # eq. 8
            "settings": (predicted - settings).square().mean(dim=1).mean(),  # eq. 9
        }
        total = sum(losses.values())
        accuracy = (logits.argmax(dim=1) == label).float().mean()
        figures = {"loss": total, **losses, "accuracy": accuracy}
        self.log_dict({f"train_{name}": value for name, value in figures.items()}, on_step=False, on_epoch=True)
        return total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=LR)


def train(labels: Path, out: Path, epochs: int = 60, seed: int = 0) -> agent.ConfigurationAgent:
    """Train an agent on a label table, save its checkpoint to `out` and return it; `seed` gives the same bits."""
    table = read_table(labels)
    label, settings, learnt = best_of(table)
    # Those of validation and test, by document, are for whoever compares agents.
    parts = divide(table.data, table.group, (0.6, 0.1, 0.3))
    learnt &= parts == 0
    low, high = table.settings.min(axis=0), table.settings.max(axis=0)
    ranges = agent.Ranges((int(low[0]), int(high[0])), (low[1], high[1]), (low[2], high[2]))
    unit = ranges.to_unit(settings[learnt]).astype(np.float32)

    torch.set_num_threads(1)  # the bits do not depend on the number of cores, and small layers gain little
    rows = torch.from_numpy(table.questions[learnt]), torch.from_numpy(label[learnt]), torch.from_numpy(unit)
    module = Training(rows, len(table.classes), seed)
    logger = WandbLogger(project="corag-agent", name=out.name, save_dir=out.parent)
    counts = Counter(table.classes[number] for number in label[learnt])
    logger.log_hyperparams({"labels": labels.name, "epochs": epochs, "seed": seed, "learnt": dict(counts)})
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, logger=logger, enable_checkpointing=False, log_every_n_steps=1,
        reload_dataloaders_every_n_epochs=1, default_root_dir=out.parent, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module)

    single = int(table.rouge[parts != 2].mean(axis=0).argmax())
    iterations, exploration, cost_weight = table.settings[single].tolist()
    fallback = agent.Fallback(table.classes[table.of_class[single]], int(iterations), exploration, cost_weight)
    config = agent.AgentConfig(
        table.classes, fallback, table.questions.shape[1], table.embedder,
        hidden=HIDDEN, map_dim=MAP_DIM, ranges=ranges,
    )  # fmt: skip
    weights = {name: tensor.numpy() for name, tensor in module.network.state_dict().items()}
    trained = agent.ConfigurationAgent(config, weights)
    facts = {"labels": labels.name, "questions learnt from": int(learnt.sum()), "epochs": epochs, "seed": seed}
    agent.save(out, trained, agent.model_card(config, facts))
    logger.experiment.log_artifact(str(out), name="checkpoint", type="model")
    logger.experiment.finish()
    return trained


if __name__ == "__main__":
    auto_cli(train, as_positional=False)
