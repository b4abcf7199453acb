"""An agent as an ONNX model: features in, configurations out, settings decoded. Needs onnx, and no torch.

Letters: `b` rows, `d` features, `R` configurations.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from agent.config import SETTINGS
from agent.errors import AgentError
from agent.files import replace_file
from agent.predict import ConfigurationAgent

HEADER = """\
<ir_version: 8, opset_import: ["": 17], producer_name: "corag">
corag_agent (float[b, {dim}] features) => (int64[b] configuration, float[b, {number}] probabilities{outputs}) {{
"""
"""ONNX's text format. Its versions are of 2022: what runs the model need not be new. Type 7 is int64."""
CHOICE = """\
probabilities = Softmax<axis = 1>(logits)
most_probable = ArgMax<axis = 1, keepdims = 0>(probabilities)
best = ReduceMax<axes = [1], keepdims = 1>(probabilities)
best_of_fallback = Gather<axis = 1>(probabilities, fallback)
lead = Sub(best, best_of_fallback)
unsure = Less(lead, min_lead)
unsure_rows = Squeeze(unsure, columns)
configuration = Where(unsure_rows, fallback, most_probable)"""
"""As in `agent.predict.decide`: where `min_lead` is 0, no lead is below it."""
SETTINGS_HEAD = """\
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
chosen = Where(unsure, fallback_settings, predicted)
chosen_iterations, chosen_exploration, chosen_cost_weight = Split<axis = 1>(chosen, widths)
whole_iterations = Cast<to = 7>(chosen_iterations)
iterations = Squeeze(whole_iterations, columns)
exploration = Squeeze(chosen_exploration, columns)
cost_weight = Squeeze(chosen_cost_weight, columns)"""
"""Settings are decoded as in `Ranges.from_unit`."""


def export_onnx(agent: ConfigurationAgent, path: str | Path) -> Path:
    """Write the agent as an ONNX file, whole or not at all; return its path."""
    path = Path(path)
    replace_file(path, to_onnx(agent).SerializeToString())
    return path


def to_onnx(agent: ConfigurationAgent) -> onnx.ModelProto:
    """Return the agent as an ONNX model that computes in float32.

    Input: `features`, float32 `[b, d]`. Outputs: `configuration`, int64 `[b]`, the index of the chosen one in
    `AgentConfig.configurations`; `probabilities`, float32 `[b, R]`, in that order; and, if the agent predicts
    settings, `iterations`, int64 `[b]`, `exploration` and `cost_weight`, float32 `[b]`. The model's metadata hold the
    checkpoint's configuration under `corag`, as JSON.

    `ConfigurationAgent.predict` computes in float64: iterations may differ by one if their value is half-way between
    two whole numbers to within the rounding of float32, and the choice if a lead is at its bound to within that.

    Raises:
        AgentError: The agent has no network.
    """
    config, ranges = agent.config, agent.config.ranges
    if not agent.has_network:
        raise AgentError(f"the agent has no network, it always names {config.fallback}; there is nothing to export")
    number = len(config.encoder_shapes)
    maps = f"maps_{number - 1}"
    lines = []
    for i in range(number):
        lines.append(f"layer_{i} = Gemm<transB = 1>({f'maps_{i - 1}' if i else 'features'}, encoder_{i}_weight, ")
        lines[-1] += f"encoder_{i}_bias)\nmaps_{i} = Relu(layer_{i})"
    lines.append(f"logits = Gemm<transB = 1>({maps}, choice_weight, choice_bias)")
    lines.append(CHOICE)
    constants = {
        **{name.replace(".", "_"): weights for name, weights in agent.weights.items()},
        "columns": np.array([1], np.int64),
        "fallback": np.array([config.configurations.index(config.fallback.configuration)], np.int64),
        "min_lead": np.array(config.min_lead, np.float32),
    }
    outputs = ""
    if ranges is not None:
        outputs = ", int64[b] iterations, float[b] exploration, float[b] cost_weight"
        lines.append(SETTINGS_HEAD)
        bounds = np.array([getattr(ranges, name) for name in SETTINGS], dtype=np.float32).T
        scaled = bounds.copy()
        scaled[:, 0] = np.log(scaled[:, 0])  # iterations are regressed on a log scale
        constants |= {
            "low": scaled[0],
            "span": scaled[1] - scaled[0],
            "lowest": bounds[0],
            "highest": bounds[1],
            "widths": np.ones(len(SETTINGS), np.int64),
            "fallback_settings": np.array(config.fallback.settings, np.float32),
        }
    header = HEADER.format(dim=config.feature_dim, number=len(config.configurations), outputs=outputs)
    model = parser.parse_model(header + "\n".join(lines).format(maps=maps) + "\n}")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    onnx.helper.set_model_props(model, {"corag": json.dumps(config.to_dict())})
    onnx.checker.check_model(model, full_check=True)
    return model
