from search import SearchConfig, search
from tests.search.worlds import TableScorer

TABLE = {
    (0,): 0.5, (1,): 0.75, (2,): 0.25,
    (1, 0): 1.0, (1, 2): 0.125, (0, 1): 0.25, (0, 2): 0.375, (2, 0): 0.0, (2, 1): 0.0,
    (1, 0, 2): 0.875, (1, 2, 0): 0.0, (0, 2, 1): 2.0, (0, 1, 2): 0.0, (2, 0, 1): 0.0, (2, 1, 0): 0.0,
}  # fmt: skip


def calls(policy, costs=(1, 1, 1), budget=3, table=TABLE, **settings):
    scorer = TableScorer(table)
    return search(costs, scorer, budget, SearchConfig(policy=policy, **settings)).order, scorer.calls


def test_greedy_extends_the_best_until_that_is_no_gain():
    assert calls("greedy") == ((1, 0), [[(0,), (1,), (2,)], [(1, 0), (1, 2)], [(1, 0, 2)]])


def test_greedy_stops_at_a_tie():
    table = {(0,): 0.5, (1,): 0.5, (1, 0): 0.5, (0, 1): 0.5}
    assert calls("greedy", (2, 1), 3, table) == ((1,), [[(1,), (0,)], [(1, 0)]])


def test_beam_extends_the_best_of_each_length_to_the_end():
    order, asked = calls("beam", beam_width=2)
    # (1,) and (0,) lead, then (1, 0) with 1.0 and (0, 2) with 0.375, whose child is the best of all.
    assert asked == [
        [(0,), (1,), (2,)],
        [(1, 0), (1, 2), (0, 1), (0, 2)],
        [(1, 0, 2), (0, 2, 1)],
    ]
    assert order == (0, 2, 1)
    assert calls("beam", beam_width=1) == calls("greedy")


def test_best_first_follows_value_plus_bound():
    # Costs 2, 1, 2 of 3. Gains 0.5, 0.75, 0.25, so per cost 1 comes first, then 0, then 2.
    # (0,): 0.5 + 0.75 (1 fits, the budget is then spent) = 1.25;  (1,): 0.75 + 0.5 = 1.25;
    # (2,): 0.25 + 0.75 = 1.0.  Of the equals (1,) is first, being cheaper.
    table = {(0,): 0.5, (1,): 0.75, (2,): 0.25, (1, 0): 0.875, (1, 2): 0.5, (0, 1): 1.0, (2, 1): 0.0}
    order, asked = calls("best-first", (2, 1, 2), 3, table)
    assert asked == [[(1,), (0,), (2,)], [(1, 0), (1, 2)], [(0, 1)], [(2, 1)]]
    assert order == (0, 1)


def test_best_first_counts_the_last_candidate_in_part():
    # Costs 4, 3, 3 of 5; only single candidates fit: 0.8, 0.6, 0.3 are gains per cost 0.2, 0.2, 0.1.
    table = {(0,): 0.8, (1,): 0.6, (2,): 0.3}
    assert calls("best-first", (4, 3, 3), 5, table) == ((0,), [[(1,), (2,), (0,)]])


def test_best_first_fills_no_more_places_than_max_length_allows():
    table = {
        (0,): 0.5,
        (1,): 0.4,
        (2,): 0.6,
        (0, 1): 0.0,
        (0, 2): 0.0,
        (2, 0): 0.0,
        (2, 1): 0.0,
        (1, 0): 0.0,
        (1, 2): 0.0,
    }
    _, asked = calls("best-first", (1, 1, 1), 3, table, max_length=2)
    # (0,): 0.5 + 0.6; (1,): 0.4 + 0.6; (2,): 0.6 + 0.5: the third candidate counts for none of them.
    assert [call[0][0] for call in asked[1:]] == [0, 2, 1]
