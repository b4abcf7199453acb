"""The selectors that an agent names: each built once, and which of them a question gets."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from corag.ambient import Ambient
from corag.errors import InputError, MissingExtraError, ModelError
from corag.models.cached import CachedEncoder
from corag.models.minilm import minilm_encoder
from corag.models.runtime import current, use_runtime
from corag.models.trained import FOLDER, shipped_checkpoint
from corag.naming import parse
from corag.optional import warn_once
from corag.registry import EMBEDDERS, RERANKERS, SELECTORS, trusted
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.features import FEATURES, agent_features
from corag.selectors.problem import SelectionProblem
from corag.selectors.wrapping import built
from corag.types import Candidate, Embedder, Reranker, Selection, TokenCounter

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

AgentSource: TypeAlias = "str | Path | ConfigurationAgent | None"
"""A checkpoint folder, the name of a checkpoint that ships with the project, a loaded agent, or `none` or None."""

DEFAULT_AGENT, NO_AGENT = "default", "none"
SHIPPED_AGENT = "agent-minilm"
"""The folder of the agent that ships with the project."""
SELECTORS_KEPT = 64
"""Built selectors in memory: if an agent predicts search settings, nearly every question has its own."""

SHARED: Ambient[Mapping[str, Any]] = Ambient(MappingProxyType({}))
"""Settings offered to the rerankers of all selectors that are built in a block, such as one `encoder`."""


def load_agent(agent: AgentSource) -> ConfigurationAgent:
    """Return a loaded agent.

    Raises:
        InputError: It is no agent, it wants features that are unknown here, or no such agent ships with this copy.
        MissingExtraError: A package that reads checkpoints is not installed.
        ModelError: The folder is not a readable checkpoint.
    """
    loaded: Any = agent
    if isinstance(agent, str | Path):
        try:
            from agent import AgentError, load
        except ImportError as error:
            raise MissingExtraError(str(error)) from error
        folder = Path(agent)
        if isinstance(agent, str) and not folder.exists() and len(folder.parts) == 1:
            folder = shipped_checkpoint(SHIPPED_AGENT if agent == DEFAULT_AGENT else agent) or folder
        if not folder.exists() and agent == DEFAULT_AGENT:
            raise InputError(f"the agent {SHIPPED_AGENT!r} is not in {FOLDER}; install corag again, or give a folder")
        try:
            loaded = load(folder)
        except AgentError as error:
            raise ModelError(str(error)) from error
    if not hasattr(loaded, "predict") or not hasattr(loaded, "config"):
        raise InputError(f"agent is {agent!r:.100}; give a checkpoint folder, what agent.load returns, or {NO_AGENT!r}")
    if loaded.has_network and not set(loaded.config.features) <= set(FEATURES):
        raise InputError(
            f"the agent {agent!s:.100} wants the features {', '.join(loaded.config.features)}; this version makes "
            f"{', '.join(FEATURES)}: use another checkpoint, or a newer corag"
        )
    return loaded  # type: ignore[no-any-return]  # checked above


class AgentSelectors:
    """What an agent names for each question, and the selectors that do it.

    Args:
        agent: A checkpoint or a loaded agent.
        tokens: Counts tokens as the answering model does.
        embedder: Embeds questions; by default the one that the agent was trained with.

    Raises:
        InputError: See `load_agent`; or another embedder is given than the agent was trained with.
        ModelError: The fallback names a part that cannot be used here. Other configurations that name one are left
            out, with a warning.
    """

    def __init__(self, agent: AgentSource, tokens: TokenCounter, embedder: Embedder | None = None) -> None:
        self.agent = load_agent(agent)
        self._source = f"the agent {agent}" if isinstance(agent, str | Path) else "the agent"
        self._tokens, self._runtime, self._lock = tokens, current(), threading.RLock()
        self.passed_over: dict[str, str] = {}
        self._shared: dict[str, Any] = dict(SHARED.get())
        self._embedder = self._embedder_for(embedder) if self.agent.has_network else None
        fallback = self.agent.config.fallback.configuration
        for name in self.agent.config.all_configurations if self.agent.has_network else (fallback,):
            try:
                trusted(SELECTORS, name, self._source)
            except ModelError as error:
                if name == fallback:
                    raise
                self._pass_over(name, error)
        self._rerankers: dict[str, Reranker] = {}
        self._predictions: weakref.WeakKeyDictionary[SelectionProblem, AgentPrediction] = weakref.WeakKeyDictionary()
        self._selector = lru_cache(SELECTORS_KEPT)(self._build)

    def predict(self, problems: Sequence[SelectionProblem]) -> list[AgentPrediction]:
        """Return what the agent names for questions, among the configurations that can be used here.

        Raises:
            InputError: None of them can.
        """
        config = self.agent.config
        if not problems:
            return []
        features: Any = np.zeros((len(problems), 0))
        if self._embedder is not None:
            features = agent_features([problem.passages for problem in problems], self._embedder, config.features)
        while True:
            available = [name for name in config.all_configurations if name not in self.passed_over]
            if not available:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self.passed_over.items())
                raise InputError(f"no configuration of {self._source} can be used here ({reasons})")
            predictions = self.agent.predict(features, available)
            assert isinstance(predictions, list)
            broken = len(self.passed_over)
            for prediction in {str(prediction): prediction for prediction in predictions}.values():
                try:
                    self._selector(str(prediction))
                except (InputError, MissingExtraError, ModelError) as error:
                    self._pass_over(prediction.configuration, error)
            if len(self.passed_over) == broken:
                return predictions

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what the selector for a question chooses from."""
        [prediction] = self.predict([SelectionProblem(query, candidates, self._tokens, budget_tokens)])
        problem = self._selector(str(prediction)).problem(query, candidates, budget_tokens)
        self._predictions[problem] = prediction
        return problem

    def choices(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Return what the selector for each question chooses; those with one selector are chosen for together."""
        names = [str(prediction) for prediction in self._predictions_for(problems)]
        choices: dict[int, Choice] = {}
        for name in dict.fromkeys(names):
            rows = [row for row, other in enumerate(names) if other == name]
            of_rows = self._selector(name)._choose_many([problems[row] for row in rows])
            choices |= dict(zip(rows, of_rows, strict=True))
        return [choices[row] for row in range(len(problems))]

    def selection(self, problem: SelectionProblem, choice: Choice | None) -> Selection:
        """Return the selection of the selector for a question; its trace says which that was, and why."""
        [prediction] = self._predictions_for([problem])
        selection = self._selector(str(prediction)).select_from(problem, choice)
        details = {
            **selection.trace.details,
            "configuration": str(prediction),
            "probabilities": dict(prediction.probabilities),
            "unsure": prediction.unsure,
            "because": self._because(prediction),
            **({"passed_over": dict(self.passed_over)} if self.passed_over else {}),
        }
        return replace(selection, trace=replace(selection.trace, details=details))

    def _because(self, prediction: AgentPrediction) -> str:
        if not self.agent.has_network:
            return f"{prediction}, named for all questions by {self._source}"
        share = f"{prediction.probabilities[prediction.configuration]:.0%} sure"
        if prediction.unsure:
            return f"{prediction}, the fallback of {self._source}, as nothing else leads by enough ({share})"
        return f"{prediction}, named by {self._source} ({share})"

    def _predictions_for(self, problems: Sequence[SelectionProblem]) -> list[AgentPrediction]:
        unknown = [problem for problem in problems if problem not in self._predictions]
        self._predictions.update(zip(unknown, self.predict(unknown), strict=True))
        return [self._predictions[problem] for problem in problems]

    def _pass_over(self, configuration: str, error: Exception) -> None:
        self.passed_over[configuration] = str(error)
        warn_once(f"{self._source} names {configuration}, which cannot be used here and is left out: {error}")

    def _build(self, configuration: str) -> BudgetedSelector:
        """Return a selector; its reranker is built once and shares what the embedder encodes."""
        written = parse(configuration)
        settings = dict(written.settings)
        reranker = settings.get("reranker")
        with self._lock, use_runtime(self._runtime), SHARED.set(self._shared):
            # A preset says how its reranker is built.
            if isinstance(reranker, str) and "preset" not in settings:
                if reranker not in self._rerankers:
                    self._rerankers[reranker] = RERANKERS.offer(reranker, self._shared)
                settings["reranker"] = self._rerankers[reranker]
            return built(written.name, self._tokens, **settings)

    def _embedder_for(self, given: Embedder | None) -> Embedder:
        wanted = self.agent.config.embedder
        if given is not None:
            if given.name != wanted:
                raise InputError(
                    f"{self._source} was trained on embeddings by {wanted!r}, but the embedder given is "
                    f"{given.name!r}; leave it out, or give corag.embedder({wanted!r})"
                )
            return given
        trusted(EMBEDDERS, wanted, self._source)
        if "encoder" in EMBEDDERS.settings(wanted):
            self._shared.setdefault("encoder", CachedEncoder(minilm_encoder()))
        return EMBEDDERS.offer(wanted, self._shared)
