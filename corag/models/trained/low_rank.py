"""Puts an adapter's tensors into a network: low-rank updates (LoRA, Hu et al., 2021) and whole tensors.

A tensor `NAME.down` `[r, in]` with `NAME.up` `[out, r]` updates the network's tensor NAME by `up @ down`; any other
takes the place of the network's tensor of its name. Knows PyTorch modules by their tensors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from corag.errors import ModelError
from corag.optional import require

DOWN, UP = ".down", ".up"


def merge(network: Any, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Update a PyTorch module in fp32, in place, with tensors in any precision.

    Raises:
        ModelError: A tensor lacks its other half, or the network has none of its name and shape.
    """
    torch = require("torch", "models")
    state = network.state_dict()
    given = {name: torch.from_numpy(tensor).float() for name, tensor in tensors.items()}
    merged = {}
    for name, tensor in given.items():
        low_rank = name.endswith((DOWN, UP))
        target = name.removesuffix(DOWN).removesuffix(UP)
        value = _product(given, target) if low_rank else tensor
        if target not in state or state[target].shape != value.shape:
            raise ModelError(
                f"the adapter's tensor {target!r} of shape {tuple(value.shape)} does not fit the network; give an "
                "adapter that was trained for this part"
            )
        merged[target] = state[target] + value if low_rank else value
    network.load_state_dict(merged, strict=False)


def _product(given: Mapping[str, Any], target: str) -> Any:
    down, up = given.get(target + DOWN), given.get(target + UP)
    if down is None or up is None or down.ndim != 2 or up.ndim != 2 or up.shape[1] != down.shape[0]:
        raise ModelError(
            f"the adapter's update of {target!r} is not a pair of matrices that can be multiplied; train again"
        )
    return up @ down
