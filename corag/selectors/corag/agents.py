"""Agents: found and loaded, and the configuration that one falls back on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from common.configuration import Configuration, parse
from common.storage import CONFIG_FILE
from corag.errors import InputError, MissingExtraError, ModelError
from corag.forks import renewed_lock
from corag.models.embedders import CachedEmbedder
from corag.models.encoders import CachedEncoder, minilm_encoder
from corag.models.runtime import current, use_runtime
from corag.optional import to_install
from corag.registry import EMBEDDERS, RERANKERS, SELECTORS
from corag.registry import tokens as make_tokens
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.features import FEATURES, feature_vectors, question_vectors
from corag.selectors.problem import SelectionProblem
from corag.selectors.self_route import built
from corag.types import Embedder, Selection, TokenCounter
from corag.untrusted import check_untrusted, too_large

if TYPE_CHECKING:
    from agent import AgentPrediction, ConfigurationAgent

AgentSource: TypeAlias = "str | Path | ConfigurationAgent | None"
"""A checkpoint folder or the one above it, the name of a repository on the Hugging Face hub, a loaded agent, or `none`
or None."""

NO_AGENT = "none"
TRAINED = "checkpoint"
"""The folder of an agent below that which `corag train` writes."""
SPENDING = frozenset(("keep", "cost_weight"))
"""Settings of which one decides how much is spent."""
SELECTORS_KEPT = 64
"""Built selectors in memory: if an agent predicts search settings, nearly every question has its own."""


def decides(agent: AgentSource) -> bool:
    """Return whether a setting gives an agent."""
    return agent is not None and agent != NO_AGENT


def checkpoint_folder(agent: str | Path) -> Path:
    """Return the folder of an agent's checkpoint: this one, or the one below, if `corag train` wrote this one."""
    folder = Path(agent)
    return folder if (folder / CONFIG_FILE).exists() or not (folder / TRAINED).is_dir() else folder / TRAINED


def load_agent(agent: AgentSource) -> ConfigurationAgent:
    """Return a loaded agent; see `AgentSource`.

    Raises:
        InputError: It is no agent, or it wants features that are unknown here.
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
    try:
        import agent as package

        if isinstance(agent, str) and not folder.exists() and all(agent.split("/")) and agent.count("/") == 1:
            return package.from_hub(agent)
        return package.load(folder)
    except ImportError as error:
        raise MissingExtraError(f"{error.__cause__ or error}; install it with: {to_install('models')}") from error


def corag_fixed(*, agent: AgentSource = None, tokenizer: str | TokenCounter | None = None) -> BudgetedSelector:
    """Use the best single configuration for every question: an agent's fallback, or without an agent what `corag` does.

    Args:
        agent: The checkpoint; see `load_agent`, also for errors.
        tokenizer: Counts tokens as the answering model does: name or object; MiniLM's by default.

    Raises:
        ModelError: The fallback names a part that a checkpoint may not name, such as one that asks a server.
    """
    written = parse("corag")
    if decides(agent):
        written = check_untrusted(SELECTORS, load_agent(agent).config.best_single, f"the agent {agent!s:.100}")
    alone = {"agent": NO_AGENT} if "agent" in SELECTORS.parameters(written) else {}
    made = built(written, {"tokenizer": make_tokens(tokenizer or "minilm")}, **alone)
    made.name = "corag-fixed"  # type: ignore[misc]  # what selections call it
    return made


class AgentSelectors:
    """What an agent names for each question, and the selectors that do it.

    Args:
        agent: A checkpoint or a loaded agent.
        tokens: Counts tokens as the answering model does.
        embedder: Embeds questions; by default the one that the agent was trained with.
        given: Settings that the user gave, such as `unit` and `cost_weight`: they replace those of every configuration
            that takes them.

    Raises:
        InputError: See `load_agent`; or another embedder is given than the agent was trained with.
        ModelError: A configuration names a part that a checkpoint may not name.
    """

    def __init__(
        self,
        agent: AgentSource,
        tokens: TokenCounter,
        embedder: Embedder | None = None,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.agent = load_agent(agent)
        self._source = f"the agent {agent}" if isinstance(agent, str | Path) else "the agent"
        self._tokens, self._given, self._runtime, self._lock = tokens, given, current(), renewed_lock()
        self._embedder = self._embedder_for(embedder) if self.agent.has_network else None
        self._key = "decision", id(self)
        config = self.agent.config
        for name in config.configurations if self.agent.has_network else (config.fallback,):
            check_untrusted(SELECTORS, name, self._source)
        # Each reranker is built once; configurations differ in what is laid around it.
        self._reranker = lru_cache(None)(RERANKERS.make)
        if isinstance(reranker := given.get("reranker"), str):
            self._reranker(reranker)  # refused now, not for each configuration
        self._spelled = lru_cache(SELECTORS_KEPT)(self._with_given)
        self._selector = lru_cache(SELECTORS_KEPT)(self._build)

    def predict(self, problems: Sequence[SelectionProblem]) -> list[AgentPrediction]:
        """Return what the agent names for questions."""
        if not problems:
            return []
        features: Any = np.zeros((len(problems), 0))
        if self._embedder is not None:
            recipe = self.agent.config.features
            vectors = question_vectors([problem.passages for problem in problems], self._embedder, recipe)
            features = feature_vectors(recipe, *zip(*vectors, strict=True))
        predictions = self.agent.predict(features)
        assert isinstance(predictions, list)
        return predictions

    def prepared(self, passages: SelectionProblem) -> SelectionProblem:
        """Return what the selector for a question chooses from."""
        [decision] = self._decisions([passages])
        problem = self._selector(decision[0]).prepared(passages)
        problem.memory[self._key] = (self, decision)
        return problem

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Return what the selector for each question chooses; those with one selector are chosen for together."""
        names = [configuration for configuration, _ in self._decisions(problems)]
        choices: dict[int, Choice] = {}
        for name in dict.fromkeys(names):
            rows = [row for row, other in enumerate(names) if other == name]
            of_rows = self._selector(name)._choose_many([problems[row] for row in rows])
            choices |= dict(zip(rows, of_rows, strict=True))
        return [choices[row] for row in range(len(problems))]

    def select_from(self, problem: SelectionProblem, choice: Choice | None = None) -> Selection:
        """Return what the selector for a question selects; the trace says which that was, and why."""
        [(configuration, prediction)] = self._decisions([problem])
        selection = self._selector(configuration).select_from(problem, choice)
        trace = selection.trace
        details = {
            "configuration": str(configuration),
            "probabilities": dict(prediction.probabilities),
            "fell_back": prediction.fell_back,
            "because": self._because(configuration, prediction, trace.cost_weight),
            # A configuration may be `corag` with an agent of its own, which says more.
            **trace.details,
        }
        return replace(selection, trace=replace(trace, details=details))

    def _because(self, configuration: Configuration, prediction: AgentPrediction, cost_weight: float | None) -> str:
        """Return in a line what is used for a question, and why."""
        settings, said = configuration.settings, str(configuration)
        if configuration.name == "corag" and {"unit", "reranker"} <= settings.keys():
            unit = settings["unit"]  # a window is window(n)
            said = f"by {unit}{'' if unit.endswith(')') else 's'}, {settings['reranker']}"
            said += "" if cost_weight is None else f", lambda {cost_weight:.2g}"
        if not self.agent.has_network:
            return f"{said}; {self._source} names it for all questions"
        if prediction.fell_back:
            return f"{said}: the default, as no other choice is clearly better"
        return f"{said}: the agent's choice ({prediction.probabilities[prediction.configuration]:.0%} sure)"

    def _with_given(self, prediction: str) -> Configuration:
        """Return the selector that a prediction spells, with the settings that are given."""
        named = parse(prediction)
        if refused := too_large(named.settings):
            raise ModelError(f"{self._source} names {named!r:.300}, but may not choose {refused}")
        takes = SELECTORS.parameters(named) if self._given else ()
        given = {name: value for name, value in self._given.items() if name in takes}
        if "search" in given:
            given["search"] = {**(named.settings.get("search") or {}), **given["search"]}
        # A promise takes the place of a price, and a price that of a promise.
        replaced = SPENDING if given.keys() & SPENDING else ()
        kept = {name: value for name, value in named.settings.items() if name not in replaced}
        return Configuration(named.name, {**kept, **given})

    def _decisions(self, problems: Sequence[SelectionProblem]) -> list[tuple[Configuration, AgentPrediction]]:
        """Return the selector for each question and what it follows from, predicted once."""
        unknown = [problem for problem in problems if self._key not in problem.memory]
        for problem, prediction in zip(unknown, self.predict(unknown), strict=True):
            # Beside the agent, so that its id is not given to another.
            problem.memory[self._key] = (self, (self._spelled(str(prediction)), prediction))
        return [problem.memory[self._key][1] for problem in problems]

    def _build(self, configuration: Configuration) -> BudgetedSelector:
        """Return a selector."""
        settings = dict(configuration.settings)
        with self._lock, use_runtime(self._runtime):
            # A preset says how its reranker is built.
            if isinstance(settings.get("reranker"), str) and "preset" not in settings:
                settings["reranker"] = self._reranker(settings["reranker"])
            if "agent" in SELECTORS.parameters(configuration):
                settings.setdefault("agent", NO_AGENT)
            return built(configuration.name, {"tokenizer": self._tokens}, **settings)

    def _embedder_for(self, given: Embedder | None) -> Embedder:
        wanted = self.agent.config.embedder
        if given is not None and given.name != wanted:
            raise InputError(
                f"{self._source} was trained on embeddings by {wanted!r}, not {given.name!r}; leave embedder out"
            )
        if given is not None:
            return given
        check_untrusted(EMBEDDERS, wanted, self._source)
        if "encoder" in EMBEDDERS.parameters(wanted):
            # Whose texts the rerankers share.
            return EMBEDDERS.make(wanted, encoder=CachedEncoder(minilm_encoder(role="reranker")))
        return CachedEmbedder(wanted)
