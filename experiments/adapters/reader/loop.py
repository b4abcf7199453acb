"""The training loop of the reader: seeded, resumable, on one process or several that share each batch.

All randomness of an epoch derives from (seed, epoch), so a training that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from agent.training.loggers import open_logger
from corag.cli.console import progress as progress_bar
from corag.errors import ModelError
from corag.models.minilm import load_bert
from corag.models.runtime import place
from corag.models.trained import load_adapter
from corag.readers.minilm_reader import FORM
from corag.readers.span_network import SpanNetwork
from experiments.adapters.reader.config import ReaderTraining
from experiments.adapters.reader.data import Example, Row, batches, collate, rows
from experiments.adapters.reader.network import build, loss_of, restore
from experiments.adapters.reader.state import Average, Progress, restore_state, save_state

STATE_FILE = "state.safetensors"
_LOG_EVERY = 10

Validate = Callable[[SpanNetwork], dict[str, float]]


def learn(
    config: ReaderTraining, learning: Sequence[Example], validate: Validate, fingerprint: str
) -> tuple[SpanNetwork, Progress]:
    """Train, from where an earlier call was stopped, and return the network and its progress.

    `validate` returns figures of a network on held-out questions, `fingerprint` is a hash of data and settings.
    """
    devices = (place("reader").device,)
    if config.processes == 1:
        return _learn(0, config, learning, validate, fingerprint, devices)
    (Path(config.out) / "meeting").unlink(missing_ok=True)
    others = torch.multiprocessing.spawn(
        _help, (config, learning, fingerprint, devices), nprocs=config.processes - 1, join=False
    )
    result = _learn(0, config, learning, validate, fingerprint, devices)
    others.join()
    return result


def _help(
    index: int, config: ReaderTraining, learning: Sequence[Example], fingerprint: str, devices: Sequence[str]
) -> None:
    _learn(index + 1, config, learning, None, fingerprint, devices)


def _learn(
    rank: int,
    config: ReaderTraining,
    learning: Sequence[Example],
    validate: Validate | None,
    fingerprint: str,
    devices: Sequence[str],
) -> tuple[SpanNetwork, Progress]:
    """Train as one of `config.processes`; the first one also validates, logs and saves."""
    out, first = Path(config.out), rank == 0
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.processes > 1:
        meeting = f"file://{(out / 'meeting').absolute()}"
        # The others wait while the first one validates.
        distributed.init_process_group("gloo", meeting, timedelta(hours=2), config.processes, rank)
    network = build(load_bert(), config.rank, config.seed, config.dropout)
    if config.init_from:
        start_from(network, config.init_from)
    network.to(devices[rank % len(devices)])
    values = [(name, value) for name, value in network.named_parameters() if value.requires_grad]
    optimizer = _optimizer(values, config)
    average = Average([value for _, value in values], config.average)
    progress = restore_state(out / STATE_FILE, fingerprint, values, average, optimizer)
    with (
        open_logger(config.logger if first else "none", out, {"rank": config.rank, "seed": config.seed}) as log,
        progress_bar("train the reader", quiet=config.quiet or not first) as report,
    ):

        def check() -> None:
            assert validate is not None
            with average.applied():
                figures = validate(network)
            progress.curve.append({"step": progress.step, "tokens": progress.tokens, **figures})
            if log is not None:
                log.log_metrics(figures, progress.step)

        def save() -> None:
            save_state(out / STATE_FILE, fingerprint, progress, values, average, optimizer)

        saved = before = time.monotonic()
        for group, num_batches in _batches_left(config, learning, progress):
            # Dropout draws from PyTorch's own generator.
            torch.manual_seed(config.seed * 1_000_003 + progress.step * 1_003 + rank)
            rate = learning_rate(config, progress.step, progress.epoch + progress.batch / num_batches)
            figures = _step(network, optimizer, group, rate, rank, config)
            average.update(progress.step)
            now = time.monotonic()
            progress.batch, progress.step = progress.batch + 1, progress.step + 1
            progress.tokens += sum(len(row.ids) for row in group)
            progress.seconds, before = progress.seconds + now - before, now
            report(int(100 * (progress.epoch + progress.batch / num_batches)), int(100 * config.epochs))
            if not first:
                continue
            if log is not None and progress.step % _LOG_EVERY == 0:
                log.log_metrics(figures, progress.step)
            if config.validate_every and progress.step % config.validate_every == 0:
                check()
            if now - saved > config.save_every_s:
                save()
                saved = now
        if first:
            if not progress.curve or progress.curve[-1]["step"] < progress.step:
                check()
            save()
            average.apply()
    if config.processes > 1:
        distributed.destroy_process_group()
    return network, progress


def _batches_left(
    config: ReaderTraining, learning: Sequence[Example], progress: Progress
) -> Iterator[tuple[list[Row], int]]:
    """Yield each batch that is not done, with the number of its epoch's; the caller counts `progress.batch`."""
    while progress.epoch < config.epochs:
        made = rows(learning, config.rows, (config.seed, progress.epoch))
        groups = batches(made, config.batch_tokens, (config.seed, progress.epoch, 1))
        last = math.ceil(min(config.epochs - progress.epoch, 1.0) * len(groups))
        for group in groups[progress.batch : last]:
            yield group, len(groups)
        if last < len(groups):
            return
        progress.epoch, progress.batch = progress.epoch + 1, 0


def start_from(network: SpanNetwork, folder: str | Path) -> None:
    """Set a network to a trained adapter; one of another form or size is a `ModelError`."""
    adapter = load_adapter(folder, FORM)
    try:
        restore(network, {name: torch.from_numpy(tensor).float() for name, tensor in adapter.tensors.items()})
    except (KeyError, RuntimeError) as error:
        raise ModelError(f"{folder} cannot be gone on from ({error}); train with its rank, on its encoder") from error


def learning_rate(config: ReaderTraining, step: int, epochs_done: float) -> float:
    """Return the learning rate of a step: up in a straight line, level, down in a straight line."""
    rise = min((step + 1) / max(config.warmup_steps, 1), 1.0)
    left = max(1.0 - epochs_done / config.epochs, 0.0)
    return config.learning_rate * rise * min(left / config.decay if config.decay else 1.0, 1.0)


def _optimizer(values: Sequence[tuple[str, torch.Tensor]], config: ReaderTraining) -> torch.optim.Optimizer:
    # Biases, norms and the one embedding are not decayed.
    decayed = [value for name, value in values if name.endswith((".down", ".up", "head.weight"))]
    others = [value for name, value in values if not name.endswith((".down", ".up", "head.weight"))]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def _step(
    network: SpanNetwork,
    optimizer: torch.optim.Optimizer,
    group: Sequence[Row],
    rate: float,
    rank: int,
    config: ReaderTraining,
) -> dict[str, float]:
    for settings in optimizer.param_groups:
        settings["lr"] = rate
    network.train()
    trained = [value for value in network.parameters() if value.requires_grad]
    figures = {"rate": rate, **backward(network, group, rank, config)}
    if config.processes > 1:
        _sum_gradients(trained)
    norm = float(torch.nn.utils.clip_grad_norm_(trained, config.clip))
    if math.isfinite(norm):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return figures | {"norm": norm}


def backward(network: SpanNetwork, group: Sequence[Row], rank: int, config: ReaderTraining) -> dict[str, float]:
    """Add the gradient of one process's share of a batch, and return the losses of the share.

    The gradients of all shares add up to that of the mean over the batch.
    """
    share = group[rank :: config.processes]
    if not share:
        return {}
    batch = collate(share)
    device = network.head.weight.device
    inputs = {name: torch.from_numpy(values).to(device) for name, values in batch.inputs.items()}
    with torch.autocast(device.type, torch.bfloat16, enabled=config.bf16):
        logits = network(**inputs)[0]
    losses = loss_of(logits.float(), batch, config.kind_weight)
    (losses["loss"] * (len(share) / len(group))).backward()
    return {name: float(value.detach()) for name, value in losses.items()}


def _sum_gradients(trained: Sequence[torch.Tensor]) -> None:
    """Give every process the sum of all processes' gradients."""
    parts = [torch.zeros_like(value) if value.grad is None else value.grad for value in trained]
    flat = torch.cat([part.flatten() for part in parts])
    distributed.all_reduce(flat)
    for value, gradient in zip(trained, flat.split([value.numel() for value in trained]), strict=True):
        value.grad = gradient.view_as(value)
