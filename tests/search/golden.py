"""Golden searches of the policy `bayesian`: problem, settings, values, and the rounds that came of them.

After a change of the search that is meant, write them again and read the difference:

    python -m tests.search.golden
"""

import json
from dataclasses import asdict

from search import SearchConfig, search
from tests.paths import GOLDEN
from tests.search.worlds import HashScorer, TableScorer

PROBLEMS = {
    "bayesian": ([3, 2, 4, 1, 3], 8, SearchConfig(policy="bayesian")),
    "bayesian_large": ([3, 2, 4, 1, 3] * 5, 12, SearchConfig(policy="bayesian", iterations=5)),
}


RECORDED = ("order", "value", "utility", "cost", "num_scored", "num_calls", "incumbents", "complete")


def record(costs, budget, config, scorer):
    result = search(costs, scorer, budget, config)
    return {
        "costs": costs,
        "budget": budget,
        "config": asdict(config),
        "result": {name: getattr(result, name) for name in RECORDED},
        "nodes": [
            {"order": order, "value": scorer.table[order], "round": number}
            for number, orders in enumerate(scorer.calls)
            for order in orders
        ],
    }


def replay(golden):
    """Search again with the stored values only, and record what came of it."""
    scorer = TableScorer({tuple(node["order"]): node["value"] for node in golden["nodes"]})
    again = record(golden["costs"], golden["budget"], SearchConfig(**golden["config"]), scorer)
    # Settings that came later have their defaults.
    again["config"] = {name: again["config"][name] for name in golden["config"]}
    return json.loads(json.dumps(again))


def regenerate():
    for name, (costs, budget, config) in PROBLEMS.items():
        golden = record(costs, budget, config, HashScorer(seed=1, levels=2**10))
        nodes = ",\n".join("  " + json.dumps(node) for node in golden.pop("nodes"))
        head = "".join(f" {json.dumps(key)}: {json.dumps(part)},\n" for key, part in golden.items())
        (GOLDEN / f"search_{name}.json").write_text(f'{{\n{head} "nodes": [\n{nodes}\n ]\n}}\n')


if __name__ == "__main__":
    regenerate()
