"""What a backend has to know of a model, and the function that it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.optional import require

Float32 = NDArray[np.float32]
Forward = Callable[[Mapping[str, NDArray[np.int64]]], Float32]
"""Maps named inputs, `[B, L]` each, to the model's first output, `[B, ...]`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A transformers model.

    Attributes:
        name: What its files in the cache folder begin with.
        sha256: Of everything that its values depend on; tells its cached files from another's.
        inputs: Names of its inputs.
        load: Returns the PyTorch module in fp32, in evaluation mode.
    """

    name: str
    sha256: str
    inputs: tuple[str, ...]
    load: Callable[[], Any]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the notices and progress bars of transformers, which tell a user nothing here, to ourselves."""
    notices = require("transformers", "models").utils.logging
    before, bars = notices.get_verbosity(), notices.is_progress_bar_enabled()
    notices.set_verbosity_error()
    notices.disable_progress_bar()
    try:
        yield
    finally:
        notices.set_verbosity(before)
        if bars:
            notices.enable_progress_bar()
