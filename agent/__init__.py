"""The configuration agent: predicts reranker and search settings from a feature vector.

It sees vectors and labels, never text. Importing it, loading a checkpoint and predicting need no torch;
training does, and is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.card import model_card
from agent.config import AgentConfig, TrainConfig
from agent.data import TrainingTable
from agent.errors import AgentError, CheckpointError
from agent.predict import AgentPrediction, ConfigurationAgent
from agent.ranges import FixedConfiguration, Ranges

if TYPE_CHECKING:
    from agent.checkpoint import load, save
    from agent.hub import HubAgent
    from agent.model import AgentModel
    from agent.onnx_export import export_onnx, to_onnx
    from agent.training import TrainReport, fit

__all__ = [
    "AgentConfig",
    "AgentError",
    "AgentModel",
    "AgentPrediction",
    "CheckpointError",
    "ConfigurationAgent",
    "FixedConfiguration",
    "HubAgent",
    "Ranges",
    "TrainConfig",
    "TrainReport",
    "TrainingTable",
    "export_onnx",
    "fit",
    "load",
    "model_card",
    "save",
    "to_onnx",
]

_LAZY = {
    "AgentModel": "agent.model",
    "HubAgent": "agent.hub",
    "TrainReport": "agent.training",
    "export_onnx": "agent.onnx_export",
    "fit": "agent.training",
    "load": "agent.checkpoint",
    "save": "agent.checkpoint",
    "to_onnx": "agent.onnx_export",
}

_EXTRAS = {"agent.onnx_export": "onnx"}
"""Modules that need another extra than `agent`."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(_LAZY[name], "agent")
        raise ImportError(f"agent.{name} needs {error.name}; install it with: pip install 'corag[{extra}]'") from error
