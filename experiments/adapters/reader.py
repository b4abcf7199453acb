"""Trains `minilm-reader`: low-rank updates of all layers of all-MiniLM-L6-v2, and a linear head for answer spans."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.nn import functional

from corag.engine.source import Float32
from corag.minilm import load_bert, model_folder
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import ReaderSettings, SpanReader, to_answer
from corag.text import passage
from corag.tokens import load_tokenizer
from experiments.adapters.low_rank import attach, export, restore
from experiments.adapters.reader_data import (
    Batch,
    Example,
    ReaderSource,
    Row,
    RowSettings,
    batches,
    collate,
    examples,
    rows,
    training_queries,
)
from experiments.metrics import exact_match, f1

logger = logging.getLogger(__name__)

SOURCES = (
    ReaderSource("squad", held_out=0.03),
    ReaderSource("nq_qed"),
    ReaderSource("hotpotqa", held_out=0.0, repeat=3),
    ReaderSource("2wikimultihopqa", repeat=3),
    ReaderSource("musique", repeat=3),
    ReaderSource("pubmedqa"),
)


@dataclass(frozen=True)
class ReaderTraining:
    """Train the extractive reader.

    Attributes:
        data: Folder that holds the data folders.
        out: Folder for the adapter (`adapter/`), the log, and the state of an unfinished training.
        sources: What to learn from.
        rows: How rows are made.
        rank: Of the updates of the weights.
        epochs: Passes over the questions.
        learning_rate: The highest; kept between warm-up and decay.
        warmup_steps: Batches in which the learning rate rises.
        decay: Share of the training, at its end, in which the learning rate falls to zero in a straight line.
        weight_decay: Of AdamW.
        clip: The largest norm of the gradient.
        dropout: Between layers.
        kind_weight: Weight of the kind of answer in the loss.
        batch_tokens: The most tokens of a batch.
        bf16: Compute in bfloat16 where that is safe; the weights stay fp32.
        processes: Processes that share the work of each batch.
        threads: CPU threads of each process; 0 for PyTorch's own choice.
        seed: Of every random choice.
        save_every_s: Seconds between two states on disk.
        validate_every: Batches between two validations; 0 for at the end of each epoch.
        validation: The most held-out questions of each source in a validation.
        init_from: Adapter folder to go on from; empty for the plain encoder.
        max_hours: Stop after so many hours of training, as if the epochs were done; the state stays.
    """

    data: str
    out: str
    sources: tuple[ReaderSource, ...] = SOURCES
    rows: RowSettings = field(default_factory=RowSettings)
    rank: int = 88
    epochs: float = 3.0
    learning_rate: float = 5e-4
    warmup_steps: int = 100
    decay: float = 0.3
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.0
    kind_weight: float = 0.3
    batch_tokens: int = 4096
    bf16: bool = True
    processes: int = 1
    threads: int = 0
    seed: int = 0
    save_every_s: float = 180.0
    validate_every: int = 0
    validation: int = 150
    init_from: str = ""
    max_hours: float = 0.0


def train_reader(config: ReaderTraining) -> Path:
    """Train, and return the adapter's folder; an interrupted training goes on where it stopped."""
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    meeting = out / "meeting"
    meeting.unlink(missing_ok=True)
    if config.processes > 1:
        torch.multiprocessing.spawn(_train, (config, meeting), nprocs=config.processes)
    else:
        _train(0, config, meeting)
    return out


def _train(rank: int, config: ReaderTraining, meeting: Path) -> None:
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.processes > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=config.processes,
            timeout=timedelta(hours=2),
        )  # fmt: skip
    out = Path(config.out)
    learning: list[Example] = []
    validation: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
    for source in config.sources:
        folder, kept, held = training_queries(Path(config.data), source)
        learning += examples(folder, kept, source.repeat)
        validation[source.data] = [
            (q.question, "\n\n".join(passage(folder.documents[g]).text for g in q.gold), q.answers)
            for q in held[: config.validation]
            if q.gold
        ]
    logger.info("%d questions to learn from", len(learning))
    network = build(config.rank, config.seed, config.dropout)
    optimizer = _optimizer(network, config)
    state = _resume(out, network, optimizer)
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    saved = time.monotonic()
    start = time.monotonic()
    spent = state["seconds"]
    for epoch in range(state["epoch"], math.ceil(config.epochs)):
        made = rows(learning, config.rows, (config.seed, epoch))
        groups = batches(made, config.batch_tokens, (config.seed, epoch, 1))
        first = state["batch"] if epoch == state["epoch"] else 0
        for index in range(first, len(groups)):
            done = epoch + index / len(groups)
            if done >= config.epochs:
                break
            # Dropout draws from PyTorch's own generator: a resumed training draws what an unbroken one would have.
            torch.manual_seed(config.seed * 1_000_003 + state["step"] * 1_003 + rank)
            figures = _step(network, optimizer, groups[index], _rate(config, state["step"], done), rank, config)
            state |= {
                "epoch": epoch,
                "batch": index + 1,
                "step": state["step"] + 1,
                "seconds": spent + time.monotonic() - start,
            }
            state["tokens"] += sum(len(row.ids) for row in groups[index])
            if rank:
                continue
            if index % 10 == 0:
                _log(out, {**state, "batches": len(groups), **figures})
            if config.validate_every and state["step"] % config.validate_every == 0:
                _log(out, {**state, **validate(network, tokenizer, validation)})
            if time.monotonic() - saved > config.save_every_s:
                _save_state(out, network, optimizer, state)
                saved = time.monotonic()
        else:
            state |= {"epoch": epoch + 1, "batch": 0}
    if not rank:
        _log(out, {**state, **validate(network, tokenizer, validation)})
        _save_state(out, network, optimizer, state)


def build(rank: int, seed: int, dropout: float) -> SpanNetwork:
    """Return the network with what is to be trained."""
    torch.manual_seed(seed)
    network = SpanNetwork(load_bert())
    # Backwards through attention, PyTorch's fused kernel takes a CPU longer than the plain products.
    network.encoder.set_attn_implementation("eager")
    attach(network.encoder.encoder, rank, seed)
    for name, parameter in network.encoder.embeddings.named_parameters():
        # The encoder has only seen token type 0.
        parameter.requires_grad_("token_type" in name or "LayerNorm" in name)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = dropout
    for layer in network.encoder.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    return network


def loss_of(logits: torch.Tensor, batch: Batch, kind_weight: float) -> dict[str, torch.Tensor]:
    """Return the loss and its parts.

    Where several spans are right, the probability of all of them counts (marginal likelihood).

    Args:
        logits: The network's output, `[B, L, NUM_OUTPUTS]`.
        batch: What was asked.
        kind_weight: Weight of the kind.
    """
    context = torch.from_numpy(batch.context)
    losses = []
    for column, right in ((0, batch.starts), (1, batch.ends)):
        known = torch.from_numpy(right.any(axis=1))
        allowed = logits[..., column].masked_fill(~context, -torch.inf)
        hit = logits[..., column].masked_fill(~torch.from_numpy(right), -torch.inf)
        difference = torch.logsumexp(allowed[known], 1) - torch.logsumexp(hit[known], 1)
        losses.append(difference.sum() / len(right))
    kind = functional.cross_entropy(logits[:, 0, 2:], torch.from_numpy(batch.kinds))
    span = (losses[0] + losses[1]) / 2
    return {"loss": span + kind_weight * kind, "span": span, "kind": kind}


def validate(
    network: SpanNetwork, tokenizer: Any, questions: Mapping[str, Sequence[tuple[str, str, tuple[str, ...]]]]
) -> dict[str, float]:
    """Return F1 and exact match on held-out questions with their gold passages, by source."""
    network.eval()
    reader = SpanReader(forward_of(network), tokenizer, ReaderSettings())
    figures: dict[str, float] = {}
    for name, asked in questions.items():
        if not asked:
            continue
        contexts = [context for _, context, _ in asked]
        readings = reader.read([question for question, _, _ in asked], contexts)
        said = [to_answer(r, context, reader.settings).text for r, context in zip(readings, contexts, strict=True)]
        for metric, function in (("f1", f1), ("em", exact_match)):
            values = [function(text, answers) for text, (_, _, answers) in zip(said, asked, strict=True)]
            figures[f"{name}_{metric}"] = round(100 * float(np.mean(values)), 2)
    network.train()
    return figures


def forward_of(network: SpanNetwork) -> Any:
    """Return the network as the scoring engine wants it."""

    def forward(inputs: Mapping[str, Any]) -> Float32:
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            result: Float32 = network(**tensors)[0].float().numpy()
        return result

    return forward


def _optimizer(network: SpanNetwork, config: ReaderTraining) -> torch.optim.Optimizer:
    named = [(name, value) for name, value in network.named_parameters() if value.requires_grad]
    decayed = [value for name, value in named if name.endswith((".down", ".up", "head.weight"))]
    others = [value for name, value in named if not name.endswith((".down", ".up", "head.weight"))]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def _step(
    network: SpanNetwork, optimizer: torch.optim.Optimizer, group: Sequence[Row], rate: float, rank: int,
    config: ReaderTraining,
) -> dict[str, float]:  # fmt: skip
    for settings in optimizer.param_groups:
        settings["lr"] = rate
    network.train()
    share = group[rank :: config.processes]
    trained = [value for value in network.parameters() if value.requires_grad]
    figures = {"loss": 0.0, "span": 0.0, "kind": 0.0}
    if share:
        batch = collate(share)
        inputs = {name: torch.from_numpy(values) for name, values in batch.inputs.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
            logits = network(**inputs)[0]
        losses = loss_of(logits.float(), batch, config.kind_weight)
        (losses["loss"] * (len(share) / len(group))).backward()
        figures = {name: float(value.detach()) for name, value in losses.items()}
    if config.processes > 1:
        flat = torch.cat([torch.zeros_like(v).flatten() if v.grad is None else v.grad.flatten() for v in trained])
        distributed.all_reduce(flat)
        for value, gradient in zip(trained, flat.split([v.numel() for v in trained]), strict=True):
            value.grad = gradient.view_as(value)
    norm = torch.nn.utils.clip_grad_norm_(trained, config.clip)
    if math.isfinite(float(norm)):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {**figures, "norm": float(norm), "rate": rate}


def _rate(config: ReaderTraining, step: int, epochs_done: float) -> float:
    """Return the learning rate of a step: up, level, down."""
    rise = min((step + 1) / max(config.warmup_steps, 1), 1.0)
    left = 1.0 - epochs_done / config.epochs
    return config.learning_rate * rise * min(left / config.decay if config.decay else 1.0, 1.0)


def _save_state(out: Path, network: SpanNetwork, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    tensors = {f"value.{name}": tensor for name, tensor in export(network).items()}
    for index, (name, parameter) in enumerate((n, p) for n, p in network.named_parameters() if p.requires_grad):
        for key in ("exp_avg", "exp_avg_sq"):
            if parameter in optimizer.state:
                tensors[f"{key}.{index}"] = optimizer.state[parameter][key]
    steps = max((float(entry["step"]) for entry in optimizer.state.values()), default=0.0)
    draft = out / "state.safetensors.tmp"
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, draft, metadata={"state": json.dumps({**state, "steps": steps})})
    os.replace(draft, out / "state.safetensors")


def _resume(out: Path, network: SpanNetwork, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    file = out / "state.safetensors"
    if not file.is_file():
        return {"epoch": 0, "batch": 0, "step": 0, "seconds": 0.0, "tokens": 0}
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        state: dict[str, Any] = json.loads(opened.metadata()["state"])
    tensors = load_file(file)
    restore(network, {name.removeprefix("value."): t for name, t in tensors.items() if name.startswith("value.")})
    steps = state.pop("steps")
    for index, parameter in enumerate(p for p in network.parameters() if p.requires_grad):
        if f"exp_avg.{index}" in tensors:
            optimizer.state[parameter] = {
                "step": torch.tensor(steps),
                "exp_avg": tensors[f"exp_avg.{index}"],
                "exp_avg_sq": tensors[f"exp_avg_sq.{index}"],
            }
    return state


def _log(out: Path, figures: Mapping[str, Any]) -> None:
    with (out / "log.jsonl").open("a") as file:
        file.write(json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in figures.items()}) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    import sys

    settings = json.loads(Path(sys.argv[1]).read_text())
    settings["rows"] = RowSettings(**settings.get("rows", {}))
    train_reader(ReaderTraining(**settings))
