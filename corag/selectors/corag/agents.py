"""Which agent decides, and which of the rerankers that it knows can be used here."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from agent.config import setting_of
from corag.ambient import Ambient
from corag.errors import CoragError, InputError, MissingExtraError, ModelError
from corag.models.runtime import current, holding
from corag.models.trained import FOLDER, shipped_checkpoint
from corag.naming import Spelling, parse
from corag.optional import warn_once
from corag.registry import EMBEDDERS, RERANKERS, trusted
from corag.registry import embedder as make_embedder
from corag.registry import reranker as make_reranker
from corag.selectors.corag.features import FEATURES
from corag.types import Embedder, Reranker

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

AgentSource: TypeAlias = "str | Path | ConfigurationAgent | None"
"""A checkpoint folder, a loaded agent, `default` for the one that ships with the project, or `none` or None."""

DEFAULT_AGENT, NO_AGENT = "default", "none"
SHIPPED_AGENT = "agent-minilm"
"""The folder of the agent that ships with the project."""

SHARED: Ambient[Mapping[str, Any]] = Ambient(MappingProxyType({}))
"""Settings offered to the rerankers of all selectors that are built in a block, such as one `encoder`."""


def load_agent(agent: AgentSource, *, strict: bool = False) -> ConfigurationAgent | None:
    """Return a loaded agent; None where there is to be none.

    With `strict`, all rerankers that it knows must be known here, and not only one of them.

    Raises:
        InputError: The agent's rerankers are unknown here, it wants other features, or no agent ships with this copy.
        MissingExtraError: A package that reads checkpoints is not installed.
        ModelError: The folder is not a readable checkpoint.
    """
    if agent is None or agent == NO_AGENT:
        return None
    if agent == DEFAULT_AGENT:
        folder = shipped_checkpoint(SHIPPED_AGENT)
        if folder is None:
            raise InputError(
                f"the agent {SHIPPED_AGENT!r} is not in {FOLDER}, where source tree and wheel have it; install corag "
                "again, or give the folder of a checkpoint"
            )
        agent = folder
    loaded = agent
    if isinstance(loaded, str | Path):
        try:
            from agent import AgentError, load
        except ImportError as error:
            raise MissingExtraError(str(error)) from error
        try:
            loaded = load(loaded)
        except AgentError as error:
            raise ModelError(str(error)) from error
    if not hasattr(loaded, "predict") or not hasattr(loaded, "config"):
        raise InputError(f"agent is {agent!r:.100}; give a checkpoint folder, what agent.load returns, or {NO_AGENT!r}")
    if not set(loaded.config.features) <= set(FEATURES):
        raise InputError(
            f"the agent {agent!s} wants the features {', '.join(loaded.config.features)}; this version of the selector "
            f"makes {', '.join(FEATURES)} only: use another checkpoint, or a newer corag"
        )
    named = [setting_of(name, "reranker") or "" for name in loaded.config.all_configurations]
    unknown = [name for name in named if not RERANKERS.knows(name)]
    if unknown and (strict or len(unknown) == len(named)):
        raise InputError(
            f"the agent {agent!s} names the reranker {unknown[0]!r}, which is unknown here; the names "
            f"are {', '.join(RERANKERS.names)}: register it under that name, or use another checkpoint"
        )
    return loaded


@dataclass(frozen=True, slots=True)
class Shipped:
    """The agent that ships with the project and what embeds questions for it, or the reason why it cannot be used."""

    agent: ConfigurationAgent | None = None
    embedder: Embedder | None = None
    reason: str = ""


def shipped_agent(embedder: Embedder | None = None, *, strict: bool = False) -> Shipped:
    """Return the agent that ships with the project, if it can be used here, else the reason why not.

    A warning gives the reason once per process; with `strict` it is raised as `CoragError`. `embedder` embeds
    questions; by default the one that the agent was trained with.
    """
    try:
        loaded = load_agent(DEFAULT_AGENT, strict=strict)
        assert loaded is not None
        return Shipped(loaded, agent_embedder(loaded, embedder))
    except CoragError as error:
        if strict:
            raise
        warn_once(f"the agent {SHIPPED_AGENT!r} is not used: {error}")
        return Shipped(reason=str(error))


def agent_embedder(agent: ConfigurationAgent, given: Embedder | None = None) -> Embedder:
    """Return what embeds questions for an agent; `InputError` where another embedder is given than it was trained with.

    For other errors see `corag.embedder`.
    """
    wanted = agent.config.embedder
    if given is None:
        return make_embedder(trusted(EMBEDDERS, wanted, "the agent"))
    given = make_embedder(given)
    if given.name != wanted:
        raise InputError(
            f"the agent was trained on embeddings by {wanted!r}, but the embedder given is {given.name!r}; leave it "
            f"out, or give corag.embedder({wanted!r})"
        )
    return given


class UsableRerankers:
    """Rerankers by name, each built once; of those that an agent knows, the most probable that can be used.

    With `strict`, one that cannot be used is an error, instead of a reason to take the next. Those that are built here
    get the settings `offered` that they take and that their names do not set.
    """

    def __init__(self, *, strict: bool = False, offered: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._strict = strict
        self._offered = {**SHARED.get(), **offered}
        self._runtime = current()
        self._usable: dict[str, Reranker] = {}
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def get(self, part: Spelling | Reranker) -> Reranker:
        """Return a reranker; see `corag.reranker`."""
        if not isinstance(part, str | Mapping):
            return make_reranker(part)
        name = parse(part)
        if name not in self._usable:
            with holding(self._runtime):
                self._usable[name] = RERANKERS.offer(name, self._offered)
        return self._usable[name]

    def predicted(self, prediction: AgentPrediction, spare: Sequence[str] = ()) -> tuple[Reranker, dict[str, str]]:
        """Return the predicted reranker, else the most probable that can be used, and why those before it cannot.

        A reranker counts as usable when it can be built and values a word. The first time that one cannot, a warning
        says so. Equal probabilities stand in label order. When none that the agent knows can be used, one of `spare` is
        taken.

        Raises:
            InputError: None can be used.
            CoragError: With `strict`, the predicted one cannot be used, and how it said so.
        """
        probabilities = {setting_of(name, "reranker") or "": odds for name, odds in prediction.probabilities.items()}
        names = sorted(probabilities, key=lambda name: (name != prediction.reranker, -probabilities[name]))
        passed_over: dict[str, str] = {}
        for name in dict.fromkeys((*names, *spare)):
            found = self._tried(name)
            if found is not None:
                return found, passed_over
            passed_over[name] = self._reasons[name]
        reasons = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items())
        raise InputError(
            f"none of the agent's rerankers can be used here ({reasons}); mend one of these, or give another"
        )

    def _tried(self, name: str) -> Reranker | None:
        with self._lock:
            if name in self._usable:
                return self._usable[name]
            if name in self._reasons:
                return None
            try:
                part = trusted(RERANKERS, name, "the agent")
                with holding(self._runtime):
                    built = RERANKERS.offer(part, self._offered)
                # Some load their model only when they are first asked.
                built.score("probe", ["probe"])
            except (InputError, MissingExtraError, ModelError) as error:
                if self._strict:
                    raise
                self._reasons[name] = str(error)
                warn_once(f"the agent's reranker {name!r} cannot be used here, so the next is taken: {error}")
                return None
            self._usable[name] = built
            return built
