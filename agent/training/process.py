"""What a training changes in its process, and puts back."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Train on one CPU thread, so that the bits do not depend on the number of cores.

    Layers this small gain little from more, and lose much when the cores are busy.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's notes on devices, its tips, and a deprecation inside it; not its warnings."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        log.setLevel(level)
