"""Search over ordered combinations of candidates under a budget.

The package sees costs and scores only: no text, model, device or tokenizer. A problem is the cost of each candidate
and a budget, an order is a tuple of candidate indices, and a function of the caller scores orders. Only the policy
`random` draws random numbers.

    result = search([120, 80, 200], score_orders, budget=256, config=SearchConfig(iterations=20))
    result.order, result.value, result.cost

Source: "CORAG: A Cost-Constrained Retrieval Optimization System for Retrieval-Augmented Generation",
section 4. Its symbols are kept: value V, total reward W, visits n, all visits N, budget B,
exploration c, cost weight lambda, utility U.
"""

from search.config import Policy, SearchConfig
from search.drivers import Run, search, search_coroutine, search_many
from search.exhaustive import exhaustive
from search.orders import count_orders
from search.tree.tree import SearchTree
from search.types import (
    Order,
    Problem,
    ScoreOrders,
    ScoreProblemOrders,
    SearchCoroutine,
    SearchError,
    SearchResult,
    StopSearch,
)

__all__ = [
    "Order",
    "Policy",
    "Problem",
    "Run",
    "ScoreOrders",
    "ScoreProblemOrders",
    "SearchConfig",
    "SearchCoroutine",
    "SearchError",
    "SearchResult",
    "SearchTree",
    "StopSearch",
    "count_orders",
    "exhaustive",
    "search",
    "search_coroutine",
    "search_many",
]
