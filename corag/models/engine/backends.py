"""One switch for what runs a model: OpenVINO or PyTorch, in which precision, on which devices.

fp32 is the default on a CPU, so that values do not depend on the machine. bf16 and fp16 round factors and sums of
products: faster, for rankings that need not repeat to the last digit. PyTorch does so in the layers alone; OpenVINO
also between them and in the model's head, and offers no switch for single operations.
"""

from __future__ import annotations

from corag.models.engine.engine import Forward, Source
from corag.models.engine.openvino import openvino_forward
from corag.models.engine.pytorch import torch_forward
from corag.models.engine.replicas import Replicas
from corag.models.ran import ran
from corag.models.runtime import Place


def load_replicas(source: Source, where: Place, model: str = "") -> Replicas[Forward]:
    """Load a model onto each of its devices; `model` is what records call it, by default the source's name.

    Raises:
        InputError: OpenVINO does not have the precision on this CPU.
        MissingExtraError: The backend is not installed.
        ModelError: A device has too little memory for it.
    """
    return Replicas([_load(source, where, device) for device in where.devices], ran(model or source.name, where))


def _load(source: Source, where: Place, device: str) -> Forward:
    if where.backend == "openvino":
        return openvino_forward(source, where.precision)
    return torch_forward(source, where.precision, device)
