"""Selectors: candidates and a budget in, a selection out.

Each class is what `corag.selector` builds by name; its keyword arguments are the settings. A selector of your own
derives from `BudgetedSelector`, which keeps the budget, and returns a `Choice` for a `SelectionProblem`.
"""

import typing

from corag import optional, registry

if typing.TYPE_CHECKING:
    from corag.selectors.adaptive_k import AdaptiveK as AdaptiveK
    from corag.selectors.base import BudgetedSelector as BudgetedSelector
    from corag.selectors.base import Choice as Choice
    from corag.selectors.base import fill as fill
    from corag.selectors.car import Car as Car
    from corag.selectors.corag.search import Corag as Corag
    from corag.selectors.edc2 import Edc2 as Edc2
    from corag.selectors.mmr import Mmr as Mmr
    from corag.selectors.problem import SelectionProblem as SelectionProblem
    from corag.selectors.raptor.selector import Raptor as Raptor
    from corag.selectors.reranking import Naive as Naive
    from corag.selectors.reranking import SentenceThreshold as SentenceThreshold
    from corag.selectors.reranking import Upper as Upper
    from corag.selectors.self_route import SelfRoute as SelfRoute
    from corag.selectors.simple import Full as Full
    from corag.selectors.simple import NoContext as NoContext
    from corag.selectors.simple import SimilarityCutoff as SimilarityCutoff
    from corag.selectors.simple import TopK as TopK
    from corag.selectors.simple import TopTokens as TopTokens
    from corag.selectors.summarizing import Crag as Crag

__getattr__, __dir__ = optional.lazy_exports(
    __name__,
    dict.fromkeys(("BudgetedSelector", "Choice", "fill"), "corag.selectors.base")
    | {"SelectionProblem": "corag.selectors.problem"}
    | registry.SELECTORS.import_paths,
)
