"""The model card: the README of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from agent.config import AgentConfig

TEMPLATE = """\
# CORAG configuration agent

Predicts, for a question, the reranker and the search settings (iterations, exploration, cost weight).

```python
import agent

configuration = agent.load("path/to/this/folder").predict(features)
```

`features`: float, {feature_dim} numbers, made with the embedder `{embedder}` and the recipe {recipe}.

Rerankers, in label order: {rerankers}.

| Setting | Lowest | Highest |
| --- | --- | --- |
| iterations | {ranges.iterations[0]} | {ranges.iterations[1]} |
| exploration | {ranges.exploration[0]} | {ranges.exploration[1]} |
| cost_weight | {ranges.cost_weight[0]} | {ranges.cost_weight[1]} |

## How it was made

| Fact | Value |
| --- | --- |
{facts}
"""


def model_card(config: AgentConfig, facts: Mapping[str, object]) -> str:
    """Return the card as Markdown.

    Args:
        config: The agent's configuration.
        facts: What a reader must know to trust or rebuild it: data, metrics, seed, commit, command.
    """
    return TEMPLATE.format(
        feature_dim=config.feature_dim,
        embedder=config.embedder,
        recipe=", ".join(f"`{part}`" for part in config.features),
        rerankers=", ".join(f"`{name}`" for name in config.rerankers),
        ranges=config.ranges,
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )
