"""Agents: found and loaded, and the configuration that one falls back on."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agent.configuration import Configuration
from corag.errors import InputError, MissingExtraError, ModelError
from corag.models.trained import FOLDER, shipped_checkpoint
from corag.naming import Spelling
from corag.optional import to_install
from corag.registry import SELECTORS, check_untrusted
from corag.registry import tokens as make_tokens
from corag.selectors.base import BudgetedSelector
from corag.selectors.corag.features import FEATURES
from corag.selectors.self_route import built
from corag.types import TokenCounter
from storage import CONFIG_FILE, modified

if TYPE_CHECKING:
    from agent import ConfigurationAgent

AgentSource: TypeAlias = "str | Path | ConfigurationAgent | None"
"""`default`, a checkpoint folder or the one above it, the name of an agent that ships with the project or is on the
Hugging Face hub, a loaded agent, or `none` or None."""

DEFAULT_AGENT, NO_AGENT = "default", "none"
SHIPPED_AGENT = "agent-minilm"
"""The folder of the agent that ships with the project."""
TRAINED = "checkpoint"
"""The folder of an agent below that which `corag train` writes."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
"""The name of a repository on the Hugging Face hub."""


def fixed_configuration(agent: AgentSource = DEFAULT_AGENT) -> Configuration:
    """Return the best single configuration of an agent: what `corag` does without one, and `corag-fixed`.

    Raises:
        ModelError: It names a part that a checkpoint may not name, such as one that asks a server.
    """
    return check_untrusted(SELECTORS, str(load_agent(agent).config.fallback), f"the agent {agent!s:.100}")


def decides(agent: AgentSource) -> bool:
    """Return whether a setting gives an agent."""
    return agent is not None and agent != NO_AGENT


def checkpoint_folder(agent: str | Path) -> Path:
    """Return the folder of an agent's checkpoint, whether it is there or not.

    A name may be that of an agent that ships with the project, and a folder the one above, which `corag train` writes.
    """
    folder = Path(agent)
    if isinstance(agent, str) and not folder.exists() and len(folder.parts) == 1:
        folder = shipped_checkpoint(SHIPPED_AGENT if agent == DEFAULT_AGENT else agent) or folder
    return folder if (folder / CONFIG_FILE).exists() or not (folder / TRAINED).is_dir() else folder / TRAINED


def load_agent(agent: AgentSource) -> ConfigurationAgent:
    """Return a loaded agent; see `AgentSource`.

    Raises:
        InputError: It is no agent, it wants features that are unknown here, or no such agent ships with this copy.
        MissingExtraError: A package that reads checkpoints is not installed.
        ModelError: The folder is not a readable checkpoint, or the repository cannot be fetched.
    """
    loaded: Any = _read(agent) if isinstance(agent, str | Path) else agent
    if not hasattr(loaded, "predict") or not hasattr(loaded, "config"):
        raise InputError(f"agent is {agent!r:.100}; give a checkpoint folder, what agent.load returns, or {NO_AGENT!r}")
    if loaded.has_network and not set(loaded.config.features) <= set(FEATURES):
        raise InputError(
            f"the agent {agent!s:.100} wants the features {', '.join(loaded.config.features)}; this version makes "
            f"{', '.join(FEATURES)}: use another checkpoint, or a newer corag"
        )
    return loaded  # type: ignore[no-any-return]  # checked above


def _read(agent: str | Path) -> ConfigurationAgent:
    folder = checkpoint_folder(agent)
    if not folder.exists() and agent == DEFAULT_AGENT:
        raise InputError(f"the agent {SHIPPED_AGENT!r} is not in {FOLDER}; install corag again, or give a folder")
    try:
        import agent as package

        if isinstance(agent, str) and not folder.exists() and REPOSITORY.fullmatch(agent):
            return package.from_hub(agent)
        return _loaded(folder, modified(folder))
    except ImportError as error:
        raise MissingExtraError(f"{error.__cause__ or error}; install it with: {to_install('models')}") from error
    except package.AgentError as error:
        raise ModelError(str(error)) from error


@lru_cache(maxsize=4)
def _loaded(folder: Path, version: object) -> ConfigurationAgent:
    """Return the agent of a folder, loaded once while its files are the same."""
    import agent

    return agent.load(folder)


def corag_fixed(
    *, agent: AgentSource = DEFAULT_AGENT, tokenizer: Spelling | TokenCounter | None = None
) -> BudgetedSelector:
    """Use the best single configuration that an agent's checkpoint records, its fallback, for every question.

    Args:
        agent: The checkpoint; see `load_agent`, also for errors. `none` means the shipped one.
        tokenizer: Counts tokens as the answering model does: name or object; MiniLM's by default.

    Raises:
        ModelError: The fallback names a part that a checkpoint may not name, such as one that asks a server.
    """
    written = fixed_configuration(agent if decides(agent) else DEFAULT_AGENT)
    alone = {"agent": NO_AGENT} if "agent" in SELECTORS.settings(written) else {}
    made = built(written, make_tokens(tokenizer or "minilm"), **alone)
    made.name = "corag-fixed"  # type: ignore[misc]  # what selections call it
    return made
