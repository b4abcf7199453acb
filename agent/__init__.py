"""The configuration agent: names a configuration, a selector's spelling, from a feature vector.

It sees vectors and labels, never text. Importing it, loading a checkpoint and predicting need no torch;
training does, and is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.config import AgentConfig as AgentConfig
from agent.config import Ranges as Ranges
from agent.config import TrainConfig as TrainConfig
from agent.predict import AgentPrediction as AgentPrediction
from agent.predict import ConfigurationAgent as ConfigurationAgent
from common.configuration import Configuration as Configuration

if TYPE_CHECKING:
    from agent.checkpoint import from_hub as from_hub
    from agent.checkpoint import load as load
    from agent.checkpoint import model_card as model_card
    from agent.checkpoint import save as save
    from agent.model import AgentModel as AgentModel
    from agent.training.data import TrainingTable as TrainingTable
    from agent.training.fit import TrainReport as TrainReport
    from agent.training.fit import fit as fit

_LAZY = {
    **dict.fromkeys(("from_hub", "load", "model_card", "save"), "agent.checkpoint"),
    **dict.fromkeys(("TrainReport", "fit"), "agent.training.fit"),
    "AgentModel": "agent.model",
    "TrainingTable": "agent.training.data",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'agent' has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"agent.{name} needs {error.name}; install it with: pip install '.[agent]' in a checkout of corag"
        ) from error
