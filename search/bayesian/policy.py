"""Policy `bayesian`: score what a model of the values expects to gain most from.

A call of a reranker costs far more than the model does, so the model weighs every order of a pool before each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from search.bayesian.gaussian_process import PRIORS, TRUSTING, Belief
from search.bayesian.pool import Pool
from search.bayesian.prior import Guesses
from search.bayesian.space import Space
from search.config import SearchConfig
from search.incumbent import Incumbent
from search.rounds import Proposing
from search.surrogate import Surrogate
from search.types import FloatArray, IntArray, Order

MAX_CANDIDATES = 1000
"""Candidates that fit the budget beyond so many are not looked at: the pool holds each one's single order."""
MAX_ENUMERATED = 2000
"""Up to so many feasible orders all are in the pool from the start."""
NUM_SEEDS = 3
"""Orders whose neighbours join a larger problem's pool each round."""
NUM_CHUNKS = 12
"""Candidates that are tried at each place of them, and heads that are left out of the fills."""


def guided(
    costs: IntArray, budget: int, config: SearchConfig, incumbent: Incumbent, surrogate: Surrogate | None
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
    num_leading = 0 if guesses is None else _num_leading(config)
    while rows := _picks(belief, incumbent, config, num_leading):
        num_leading = 0
        values = yield [tuple(names[list(pool.order(row))].tolist()) for row in rows]
        belief.learn(values)
        if enumerated is None and not belief.flat:
            best = tuple(names.searchsorted(incumbent.order).tolist())
            _widen(space, pool, belief, grow, incumbent.worth, best, widened)


def _num_leading(config: SearchConfig) -> int:
    """How many orders of the first round the surrogate chooses: half, and all where no full round comes after it.

    The others are what the model knows least about: without them it believes that the surrogate knows everything.
    """
    is_last = config.iterations == 1 or (config.max_scored is not None and config.max_scored < 2 * config.batch_size)
    return config.batch_size if is_last else config.batch_size // 2


def _picks(belief: Belief, incumbent: Incumbent, config: SearchConfig, num_leading: int) -> list[int]:
    """Pool rows to score next, each after the ones before it were foretold; fewer or none when the rest is hopeless.

    The first `num_leading` are a surrogate's choice, as long as nothing is known.
    """
    rows: list[int] = []
    while len(rows) < config.batch_size and belief.open.any():
        if not belief.flat:
            gains = belief.expected_gains(incumbent.worth)
            if config.patience is not None and gains.max() <= belief.least_gain(config.patience):
                break
        elif config.patience is not None and incumbent.num_scored and belief.all_chunks_seen:
            break
        elif len(rows) < num_leading:
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


def _ranked(scores: FloatArray) -> IntArray:
    """Places by score, largest first, the earlier of equals."""
    return np.argsort(-_settled(scores), kind="stable")


def _settled(scores: FloatArray) -> FloatArray:
    """Scores rounded to a billionth of the largest, so that no machine's last bits decide between near ties."""
    scale = float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)) or 1.0
    return np.round(scores / scale, 9)
