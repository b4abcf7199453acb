"""The selectors of a checkpoint that chooses whole configurations, and which of them a question gets."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.errors import CoragError, InputError, ModelError
from corag.models.cached import CachedEncoder
from corag.models.minilm import minilm_encoder
from corag.naming import parse
from corag.optional import warn_once
from corag.registry import EMBEDDERS, RERANKERS, SELECTORS, trusted
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.corag.agents import SHARED
from corag.selectors.corag.features import agent_features, feature_dim
from corag.selectors.corag.routing import Kind, Prefer, Route, prices_of
from corag.selectors.corag.tuned import Tuned
from corag.selectors.problem import SelectionProblem
from corag.selectors.wrapping import built
from corag.types import Candidate, Embedder, Selection, TokenCounter

if TYPE_CHECKING:
    from corag.index.search import Retrieval


class TunedChoice:
    """The selectors of a checkpoint, each built once.

    Args:
        tuned: What the checkpoint says.
        tokens: Counts tokens as the answering model does.
        embedder: Embeds questions for the router; by default the one that the checkpoint names.
        prefer: What counts: quality, balanced, tokens, latency, or the price of a whole budget of tokens. By default as
            the checkpoint was made.
        strict: Whether every configuration has to be usable here, and not only that for unknown questions.

    Raises:
        InputError: The preference is none, or the checkpoint knows no costs.
        ModelError: A selector names a model of the hub that is not on this machine, or an embedder is given that the
            router was not made with.
    """

    def __init__(
        self,
        tuned: Tuned,
        tokens: TokenCounter,
        embedder: Embedder | None = None,
        *,
        prefer: Prefer | None = None,
        strict: bool = False,
    ) -> None:
        self.tuned, self._tokens = tuned, tokens
        self._shared: dict[str, Any] = {}
        if prefer is not None and not tuned.priced:
            raise InputError(f"{tuned.path} is of an older form, without tokens and times; for prefer, tune again")
        self._prices = prices_of(tuned.record.get("prefer") if prefer is None else prefer)
        self._embedder = self._router_s(embedder) if tuned.router.looks else None
        if self._embedder is not None:
            wanted, found = feature_dim(tuned.features, self._embedder.dimension), tuned.router.centres.shape[1]
            if wanted != found:
                raise ModelError(
                    f"{tuned.path} has centres of {found} numbers, but its features have {wanted}; copy all of it"
                )
        self._usable = self._usable_here(strict)
        self._default = tuned.router.fallback(self._prices, self._usable)
        self._selector = cache(self._built)
        self._known: weakref.WeakKeyDictionary[SelectionProblem, Route] = weakref.WeakKeyDictionary()

    @property
    def retrieval(self) -> Retrieval | None:
        """How candidates are best found in an index."""
        return self.tuned.configurations[self._default].retrieval

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what the selector for a question chooses from."""
        route = Route(self._default)
        if self.tuned.router.looks:
            [route] = self._routes([SelectionProblem(query, candidates, self._tokens, budget_tokens)])
        made = self._of(route).problem(query, candidates, budget_tokens)
        self._known[made] = route
        return made

    def choices(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        """Return what the selector for each question chooses."""
        routes = self._routes_of(problems)
        found: dict[int, Choice] = {}
        for place in dict.fromkeys(route.place for route in routes):
            rows = [row for row, route in enumerate(routes) if route.place == place]
            chosen = self._of(routes[rows[0]])._choose_many([problems[row] for row in rows])
            found |= dict(zip(rows, chosen, strict=True))
        return [found[row] for row in range(len(problems))]

    def selection(self, problem: SelectionProblem, choice: Choice | None) -> Selection:
        """Return the selection of the selector for a question; its trace tells which that was, and why."""
        [route] = self._routes_of([problem])
        made = self._of(route).select_from(problem, choice)
        details = {**made.trace.details, **self.explained(route)}
        return replace(made, trace=replace(made.trace, details=details))

    def explained(self, route: Route) -> dict[str, Any]:
        """Return which configuration a question got, how sure that is, and why."""
        found: dict[str, Any] = {
            "tuned": self.tuned.configurations[route.place].selector,
            "because": self._because(route),
        }
        if self.tuned.router.looks:
            figures = asdict(route)
            del figures["place"]
            found["route"] = figures | {"kind": self._kind(route).name}
        return found

    def _kind(self, route: Route) -> Kind:
        return self.tuned.router.kinds[route.kind or 0]

    def _because(self, route: Route) -> str:
        router = self.tuned.router
        names = [one.selector for one in self.tuned.configurations]
        name, default, kind = names[route.place], names[self._default], self._kind(route)
        if not router.looks:
            return f"{name}, chosen for all questions by a tuning"
        if route.unsure:
            return (
                f"{name}, the default: the question is unlike all known kinds (cosine {route.cosine:.2f} to the "
                f"nearest, below {router.unsure_below:.2f})"
            )
        why = f"like {kind.about} ({route.probability:.0%} sure)"
        if route.place == self._default:
            return f"{name}, the default: {why}, and nothing else is expected to gain"
        why += f", expected to gain {route.gain:+.3f} over {default}"
        if router.as_good is not None and route.kind is not None:
            share = router.as_good[route.kind, route.place]
            why += f"; at least as good on {share * kind.questions:.0f} of {kind.questions} such questions"
        return f"{name}: {why}"

    def _routes_of(self, problems: Sequence[SelectionProblem]) -> list[Route]:
        unknown = [problem for problem in problems if problem not in self._known]
        if unknown and self.tuned.router.looks:
            self._known.update(zip(unknown, self._routes([one.passages for one in unknown]), strict=True))
        return [self._known.get(problem, Route(self._default)) for problem in problems]

    def _routes(self, problems: Sequence[SelectionProblem]) -> list[Route]:
        assert self._embedder is not None
        features = agent_features(problems, self._embedder, self.tuned.features)
        return self.tuned.router.routes(features.astype(np.float64), self._prices, self._usable)

    def _of(self, route: Route) -> BudgetedSelector:
        return self._selector(self.tuned.configurations[route.place].selector)

    def _built(self, name: str) -> BudgetedSelector:
        """Return a selector whose reranker shares what the router encodes."""
        written = parse(name)
        settings, reranker = dict(written.settings), written.settings.get("reranker")
        if not self._shared:
            return built(written.name, self._tokens, settings)
        # `corag` has presets, which say how its reranker is built.
        if isinstance(reranker, str) and "preset" not in SELECTORS.settings(name):
            settings["reranker"] = RERANKERS.offer(reranker, self._shared)
        with SHARED.set({**SHARED.get(), **self._shared}):
            return built(written.name, self._tokens, settings)

    def _router_s(self, embedder: Embedder | None) -> Embedder:
        wanted = self.tuned.embedder
        if embedder is None:
            wanted = trusted(EMBEDDERS, wanted, self.tuned.path)
            if "encoder" in EMBEDDERS.settings(wanted):
                self._shared = {"encoder": SHARED.get().get("encoder") or CachedEncoder(minilm_encoder())}
            return EMBEDDERS.offer(wanted, self._shared)
        if embedder.name != wanted:
            raise ModelError(
                f"{self.tuned.path} tells kinds of questions apart by {wanted!r}, but the embedder given is "
                f"{embedder.name!r}; leave it out"
            )
        return embedder

    def _usable_here(self, strict: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which configurations can be used here, `[C]`."""
        names = self.tuned.configurations
        wanted = self.tuned.router.fallback(self._prices)
        usable = np.ones(len(names), dtype=bool)
        # Of one kind, the others are never asked.
        for place in range(len(names)) if self.tuned.router.looks else [wanted]:
            try:
                trusted(SELECTORS, names[place].selector, self.tuned.path)
            except CoragError as error:
                if strict or place == wanted:
                    raise
                usable[place] = False
                warn_once(f"{self.tuned.path}: {names[place]} cannot be used here and is left out: {error}")
        return usable
