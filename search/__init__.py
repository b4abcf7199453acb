"""Search over ordered combinations of candidates under a budget.

The package sees costs and scores only: no text, model, device or tokenizer. A problem is the cost of each candidate
and a budget, an order is a tuple of candidate indices, and a function of the caller scores orders. Nothing is drawn
at random.

    result = search([120, 80, 200], score_orders, budget=256, config=SearchConfig(iterations=20))
    result.order, result.value, result.cost

Source: "CORAG: A Cost-Constrained Retrieval Optimization System for Retrieval-Augmented Generation",
section 4. Its symbols are kept: value V, total reward W, visits n, all visits N, budget B,
exploration c, cost weight lambda, utility U.
"""

from search.drivers import search as search
from search.drivers import search_many as search_many
from search.exhaustive import exhaustive as exhaustive
from search.tree import SearchTree as SearchTree
from search.types import PRESETS as PRESETS
from search.types import Backup as Backup
from search.types import Choice as Choice
from search.types import Order as Order
from search.types import Policy as Policy
from search.types import Preset as Preset
from search.types import ScoreOrders as ScoreOrders
from search.types import ScoreProblemOrders as ScoreProblemOrders
from search.types import SearchConfig as SearchConfig
from search.types import SearchResult as SearchResult
from search.types import Visits as Visits
