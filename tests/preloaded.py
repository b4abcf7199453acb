"""What commands import, imported once by the server whose forks run them; what is not installed is passed over."""

import warnings
from contextlib import suppress
from importlib import import_module

# The server only imports Lance, so no operation is under way when it forks.
warnings.filterwarnings("ignore", "lancedb fork support is experimental", RuntimeWarning)

for name in (
    "corag.cli.main", "corag.cli.ask", "corag.index", "agent.training.fit", "experiments.agents.train",
    "experiments.labels.label", "experiments.evaluation.comparison",
    "bm25s", "ir_measures", "lancedb", "openvino", "pandas", "rouge_score.rouge_scorer", "sklearn", "transformers",
):  # fmt: skip
    with suppress(ImportError):
        import_module(name)
