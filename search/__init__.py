"""Search over ordered combinations of candidates under a budget.

The package sees costs and scores and nothing else: no text, model, device or tokenizer. A problem is
the cost of each candidate and a budget, an order is a tuple of candidate indices, and a function given
by the caller says what orders are worth. No random numbers are used but by the policy `random`.

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
