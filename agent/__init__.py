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
    from agent.model import AgentModel
    from agent.training import TrainReport, fit

__all__ = [
    "AgentConfig",
    "AgentError",
    "AgentModel",
    "AgentPrediction",
    "CheckpointError",
    "ConfigurationAgent",
    "FixedConfiguration",
    "Ranges",
    "TrainConfig",
    "TrainReport",
    "TrainingTable",
    "fit",
    "load",
    "model_card",
    "save",
]

_LAZY = {
    "AgentModel": "agent.model",
    "TrainReport": "agent.training",
    "fit": "agent.training",
    "load": "agent.checkpoint",
    "save": "agent.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"agent.{name} needs {error.name}; install it with: pip install 'corag[agent]'") from error
