"""An agent as an ONNX model: features in, configurations out, settings decoded. Needs onnx, and no torch.

Letters: `b` rows, `d` features, `R` rerankers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from agent.config import DESCRIPTIONS
from agent.configurations import SETTINGS
from agent.files import replace_file
from agent.predict import ConfigurationAgent

BY_LABELS = "probabilities = Softmax<axis = 1>(logits)"
BY_LABELS_AND_DESCRIPTIONS = """\
labelled = Softmax<axis = 1>(logits)
  near_logits = Gemm({maps}, nearness_weight, nearness_bias)
  near = Softmax<axis = 1>(near_logits)
  near_labelled = Gather<axis = 1>(near, labelled_rows)
  share = ReduceSum<keepdims = 1>(near_labelled, columns)
  divided = Mul(labelled, share)
  others = Gather<axis = 1>(near, other_rows)
  probabilities = Concat<axis = 1>(divided, others)"""

GRAPH = """\
<ir_version: 8, opset_import: ["": 17], producer_name: "corag">
corag_agent (float[b, {dim}] features) => (
  int64[b] reranker, float[b, {rerankers}] probabilities,
  int64[b] iterations, float[b] exploration, float[b] cost_weight
) {{
  {encoder}
  logits = Gemm<transB = 1>({maps}, reranker_weight, reranker_bias)
  {probabilities}
  settings = Gemm<transB = 1>({maps}, settings_weight, settings_bias)
  unit = Sigmoid(settings)
  spread = Mul(unit, span)
  scaled = Add(spread, low)
  log_iterations, scaled_exploration, scaled_cost_weight = Split<axis = 1>(scaled, widths)
  natural = Exp(log_iterations)
  whole = Round(natural)
  joined = Concat<axis = 1>(whole, scaled_exploration, scaled_cost_weight)
  raised = Max(joined, lowest)
  predicted = Min(raised, highest)
  most_probable = ArgMax<axis = 1, keepdims = 0>(probabilities)
  best = ReduceMax<axes = [1], keepdims = 1>(probabilities)
  best_of_fixed = Gather<axis = 1>(probabilities, fixed_reranker)
  lead = Sub(best, best_of_fixed)
  unsure = Less(lead, min_lead)
  unsure_rows = Squeeze(unsure, columns)
  reranker = Where(unsure_rows, fixed_reranker, most_probable)
  chosen = Where(unsure, fixed_settings, predicted)
  chosen_iterations, chosen_exploration, chosen_cost_weight = Split<axis = 1>(chosen, widths)
  whole_iterations = Cast<to = 7>(chosen_iterations)
  iterations = Squeeze(whole_iterations, columns)
  exploration = Squeeze(chosen_exploration, columns)
  cost_weight = Squeeze(chosen_cost_weight, columns)
}}
"""
"""ONNX's text format. Its versions are of 2022: what runs the model need not be new. Type 7 is int64.

Settings are decoded as in `Ranges.from_unit`, and decided as in `agent.predict.decide`: where `min_lead` is 0, no lead
is below it.
"""


def export_onnx(agent: ConfigurationAgent, path: str | Path) -> Path:
    """Write the agent as an ONNX file, whole or not at all; return its path."""
    path = Path(path)
    replace_file(path, to_onnx(agent).SerializeToString())
    return path


def to_onnx(agent: ConfigurationAgent) -> onnx.ModelProto:
    """Return the agent as an ONNX model that computes in float32.

    Input: `features`, float32 `[b, d]`. Outputs: `reranker`, int64 `[b]`, the chosen one's place in the order of the
    rerankers (`AgentConfig.all_rerankers`); `probabilities`, float32 `[b, R]`, in that order; `iterations`, int64
    `[b]`; `exploration` and `cost_weight`, float32 `[b]`, within the agent's ranges. The model's metadata hold the
    checkpoint's configuration under `corag`, as JSON: reranker names, embedder, feature recipe.

    `ConfigurationAgent.predict` computes in float64: iterations may differ by one where their value lies between two
    whole numbers to within the rounding of float32, and what is chosen where a lead is at its bound to within that.
    """
    config = agent.config
    layers = [
        f"layer_{i} = Gemm<transB = 1>({f'maps_{i - 1}' if i else 'features'}, encoder_{i}_weight, encoder_{i}_bias)\n"
        f"  maps_{i} = Relu(layer_{i})"
        for i in range(len(config.encoder_shapes))
    ]
    maps = f"maps_{len(layers) - 1}"
    model = parser.parse_model(
        GRAPH.format(
            dim=config.feature_dim,
            rerankers=len(config.all_rerankers),
            encoder="\n  ".join(layers),
            maps=maps,
            probabilities=(BY_LABELS_AND_DESCRIPTIONS if config.unlabelled else BY_LABELS).format(maps=maps),
        )
    )
    bounds = np.array([getattr(config.ranges, name) for name in SETTINGS], dtype=np.float32).T
    scaled = bounds.copy()
    scaled[:, 0] = np.log(scaled[:, 0])  # iterations are regressed on a log scale
    label = config.rerankers.index(config.fixed.reranker) if config.fixed else 0
    fixed = [getattr(config.fixed, name) for name in SETTINGS] if config.fixed else bounds[0]
    constants = {
        **{name.replace(".", "_"): weights for name, weights in agent.weights.items() if name != DESCRIPTIONS},
        "low": scaled[0],
        "span": scaled[1] - scaled[0],
        "lowest": bounds[0],
        "highest": bounds[1],
        "widths": np.ones(len(SETTINGS), np.int64),
        "columns": np.array([1], np.int64),
        "fixed_reranker": np.array([label], np.int64),
        "fixed_settings": np.array(fixed, np.float32),
        "min_lead": np.array(config.min_lead, np.float32),
    }
    if config.unlabelled:
        weight, bias = agent.nearness()
        constants |= {
            "nearness_weight": weight.astype(np.float32),
            "nearness_bias": bias.astype(np.float32),
            "labelled_rows": np.array(agent.described_rows[0], np.int64),
            "other_rows": np.array(agent.described_rows[1], np.int64),
        }
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    onnx.helper.set_model_props(model, {"corag": json.dumps(config.to_dict())})
    onnx.checker.check_model(model, full_check=True)
    return model
