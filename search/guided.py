"""Policy `model`: score what a model of the values expects to gain most from.

A call of a reranker costs far more than the model does, so the model weighs every order of a pool before each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from search.belief import PRIORS, TRUSTING, Belief
from search.config import SearchConfig
from search.incumbent import Incumbent
from search.pool import Pool
from search.rounds import Proposing
from search.space import Space, children_of
from search.surrogate import Surrogate
from search.types import FloatArray, IntArray, Order

BEAM_WIDTH = 16
MAX_CANDIDATES = 1000
"""Candidates that fit the budget beyond so many are not looked at: the pool holds each one's single order."""
MAX_ENUMERATED = 2000
"""Up to so many feasible orders all are in the pool from the start."""
NUM_SEEDS = 3
"""Orders whose neighbours join a larger problem's pool each round."""
NUM_CHUNKS = 12
"""Candidates that are tried at each place of them, and heads that are left out of the fills."""


def guided(
    costs: IntArray, budget: int, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None = None
) -> Proposing:
    """Propose `batch_size` orders a round, until nothing is expected to gain enough (`patience`)."""
    names = np.flatnonzero(costs <= budget)[:MAX_CANDIDATES]
    if not len(names):
        return
    space = Space(costs[names], budget, config.max_length)
    pool = Pool(space.costs, budget, space.max_length)
    belief = Belief(pool, PRIORS if surrogate is None else TRUSTING)
    enumerated = space.all_orders(MAX_ENUMERATED)
    guesses = None if surrogate is None else Guesses(surrogate, names)
    grow = partial(_grow, pool, belief, guesses)
    grow(space.opening() if enumerated is None else enumerated)
    if enumerated is None and guesses is not None:
        grow(space.rows(guesses.beam(space)))
    widened: set[Order] = set()
    while rows := _picks(belief, incumbent, config):
        values = yield [tuple(names[list(pool.order(row))].tolist()) for row in rows]
        belief.learn(values)
        if enumerated is None and not belief.flat:
            best = tuple(names.searchsorted(incumbent.order).tolist())
            _widen(space, pool, belief, grow, incumbent.worth, best, widened)


def _picks(belief: Belief, incumbent: Incumbent, config: SearchConfig) -> list[int]:
    """Pool rows to score next, each after the ones before it were foretold; fewer or none when the rest is hopeless."""
    rows: list[int] = []
    while len(rows) < config.batch_size and belief.open.any():
        if not belief.flat:
            gains = belief.expected_gains(incumbent.worth)
            if config.patience is not None and gains.max() <= belief.least_gain(config.patience):
                break
        elif config.patience is not None and incumbent.num_scored and belief.all_chunks_seen:
            break
        elif belief.guessing and not incumbent.num_scored:
            gains = belief.promises()
        else:
            gains = np.where(belief.open, belief.deviations().sum(0), -np.inf)
        rows.append(int(_settled(gains).argmax()))
        belief.foretell(rows[-1])
    return rows


def _grow(pool: Pool, belief: Belief, guesses: Guesses | None, rows: IntArray) -> None:
    new = pool.add(rows)
    belief.extend(new, None if guesses is None else guesses([pool.order(row) for row in range(new.start, new.stop)]))


def _widen(
    space: Space,
    pool: Pool,
    belief: Belief,
    grow: Callable[[IntArray], None],
    value: float,
    best: Order,
    widened: set[Order],
) -> None:
    """Add to the pool orders made of the most hopeful candidates, and neighbours of the most promising orders."""
    hopes = belief.hopes()[: len(space.costs)]  # the single candidates open the pool
    by_hope = _ranked(hopes).tolist()
    by_density = _ranked((hopes - hopes.min()) / np.maximum(space.costs, 1)).tolist()
    starts = range(min(NUM_CHUNKS, len(by_hope)))
    fills = [space.filled(ranking[start:]) for ranking in (by_hope, by_density) for start in starts]
    grow(space.rows(fills))
    promising = _ranked(belief.expected_gains(value))[: 4 * NUM_SEEDS].tolist()
    seeds = [seed for seed in (best, *map(pool.order, promising)) if seed not in widened][:NUM_SEEDS]
    widened.update(seeds)
    neighbours = (order for seed in seeds for order in space.neighbours(seed, by_hope[:NUM_CHUNKS]))
    grow(space.rows(neighbours))


class Guesses:
    """What a surrogate says about orders of a pool, shifted and stretched so that the pool's first orders vary by 1.

    Args:
        surrogate: The surrogate.
        names: What it calls the candidates of the pool, `[C]`.
    """

    def __init__(self, surrogate: Surrogate, names: IntArray) -> None:
        self._surrogate, self._names = surrogate, names.tolist()
        self._line: tuple[float, float] | None = None

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return the guesses, `[len(orders)]`."""
        if not orders:
            return np.zeros(0)
        values = self._raw(orders)
        if self._line is None:
            spread = float(values.std())
            self._line = float(values.mean()), spread if np.isfinite(1 / spread) else np.inf
        return (values - self._line[0]) / self._line[1]

    def beam(self, space: Space) -> list[Order]:
        """Return the orders that a beam keeps."""
        children = children_of(space.costs, space.budget, space.max_length)
        front: list[Order] = [()]
        found: list[Order] = []
        while orders := [child for order in front for child in children(order)]:
            best = np.argsort(-self._raw(orders), kind="stable")[:BEAM_WIDTH].tolist()
            front = [orders[place] for place in best]
            found += front
        return found

    def _raw(self, orders: Sequence[Order]) -> FloatArray:
        return self._surrogate([tuple(self._names[chunk] for chunk in order) for order in orders])


def _ranked(scores: FloatArray) -> IntArray:
    """Places by score, largest first, the earlier of equals."""
    return np.argsort(-_settled(scores), kind="stable")


def _settled(scores: FloatArray) -> FloatArray:
    """Scores rounded to a billionth of the largest, so that no machine's last bits decide between near ties."""
    scale = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) or 1.0
    return np.round(scores / scale, 9)
