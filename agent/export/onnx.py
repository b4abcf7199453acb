"""An agent as an ONNX model: features in, configurations out, settings decoded. Needs onnx, and no torch.

Letters: `b` rows, `d` features, `R` rerankers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from agent.configurations import SETTINGS
from agent.files import replace_file
from agent.predict import ConfigurationAgent

OPSET, IR_VERSION = 17, 8
"""Of 2022: what runs the model need not be new."""

Constants = Mapping[str, NDArray[np.float32] | NDArray[np.int64]]


def export_onnx(agent: ConfigurationAgent, path: str | Path) -> Path:
    """Write the agent as an ONNX file, whole or not at all; return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, to_onnx(agent).SerializeToString())
    return path


def to_onnx(agent: ConfigurationAgent) -> onnx.ModelProto:
    """Return the agent as an ONNX model that computes in float32.

    Input: `features`, float32 `[b, d]`. Outputs: `reranker`, int64 `[b]`, the chosen one's place in the order of the
    rerankers; `probabilities`, float32 `[b, R]`, in that order; `iterations`, int64 `[b]`; `exploration` and
    `cost_weight`, float32 `[b]`, within the agent's ranges. The model's metadata hold the checkpoint's configuration
    under `corag`, as JSON: reranker names, embedder, feature recipe.

    `ConfigurationAgent.predict` computes in float64: iterations may differ by one where their value lies between two
    whole numbers to within the rounding of float32, and what is chosen where a lead is at its bound to within that.
    """
    config = agent.config
    constants: dict[str, NDArray[np.float32] | NDArray[np.int64]] = dict(agent.weights)
    nodes: list[onnx.NodeProto] = []
    maps = "features"
    for number in range(len(config.encoder_shapes)):
        layer, inputs, maps = f"encoder.{number}", maps, f"maps.{number}"
        nodes += [_linear(inputs, layer, layer), _node("Relu", [layer], maps)]
    nodes += [_linear(maps, "reranker", "logits"), _node("Softmax", ["logits"], "probabilities", axis=1)]
    nodes += [_linear(maps, "settings", "settings"), _node("Sigmoid", ["settings"], "unit")]
    nodes += _decoded(agent, constants)
    nodes += _decided(agent, constants)
    graph = helper.make_graph(
        nodes,
        "corag-agent",
        inputs=[helper.make_tensor_value_info("features", TensorProto.FLOAT, ["b", config.feature_dim])],
        outputs=[
            helper.make_tensor_value_info("reranker", TensorProto.INT64, ["b"]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["b", len(config.rerankers)]),
            helper.make_tensor_value_info("iterations", TensorProto.INT64, ["b"]),
            helper.make_tensor_value_info("exploration", TensorProto.FLOAT, ["b"]),
            helper.make_tensor_value_info("cost_weight", TensorProto.FLOAT, ["b"]),
        ],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph, producer_name="corag", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(model, {"corag": json.dumps(config.to_dict())})
    onnx.checker.check_model(model, full_check=True)
    return model


def _decoded(
    agent: ConfigurationAgent, constants: dict[str, NDArray[np.float32] | NDArray[np.int64]]
) -> list[onnx.NodeProto]:
    """Return what `Ranges.from_unit` does, from `unit` `[b, 3]` to `<name>.predicted` `[b]` for each setting."""
    ranges = agent.config.ranges
    bounds = np.array([getattr(ranges, name) for name in SETTINGS], dtype=np.float32)
    scaled = bounds.copy()
    scaled[0] = np.log(scaled[0])  # iterations are regressed on a log scale
    constants["span"], constants["low"] = scaled[:, 1] - scaled[:, 0], scaled[:, 0].copy()
    constants["widths"], constants["columns"] = np.ones(len(SETTINGS), np.int64), np.array([1], np.int64)
    nodes = [_node("Mul", ["unit", "span"], "spread"), _node("Add", ["spread", "low"], "scaled")]
    parts = [f"{name}.scaled" for name in SETTINGS]
    nodes += [helper.make_node("Split", ["scaled", "widths"], parts, axis=1)]
    for name, part, (low, high) in zip(SETTINGS, parts, bounds, strict=True):
        constants[f"{name}.low"], constants[f"{name}.high"] = np.array(low), np.array(high)
        value = f"{name}.column"
        nodes.append(_node("Squeeze", [part, "columns"], value))
        if name == "iterations":
            nodes += [_node("Exp", [value], f"{name}.natural"), _node("Round", [f"{name}.natural"], f"{name}.whole")]
            value = f"{name}.whole"
        predicted = f"{name}.predicted"
        clipped = f"{name}.clipped" if name == "iterations" else predicted
        nodes.append(_node("Clip", [value, f"{name}.low", f"{name}.high"], clipped))
        if name == "iterations":
            nodes.append(_node("Cast", [clipped], predicted, to=TensorProto.INT64))
    return nodes


def _decided(
    agent: ConfigurationAgent, constants: dict[str, NDArray[np.float32] | NDArray[np.int64]]
) -> list[onnx.NodeProto]:
    """Return what `agent.predict.decide` does, from `probabilities` and predicted settings to the outputs."""
    config, names = agent.config, ("reranker", *SETTINGS)
    nodes = [_node("ArgMax", ["probabilities"], "reranker.predicted", axis=1, keepdims=0)]
    if not config.min_lead or config.fixed is None:
        return nodes + [_node("Identity", [f"{name}.predicted"], name) for name in names]
    label = config.rerankers.index(config.fixed.reranker)
    fixed = (label, *(getattr(config.fixed, name) for name in SETTINGS))
    for name, value in zip(names, fixed, strict=True):
        whole = name in ("reranker", "iterations")
        constants[f"{name}.fixed"] = np.array(value, np.int64) if whole else np.array(value, np.float32)
    constants["min_lead"] = np.array(config.min_lead, np.float32)
    nodes += [
        _node("ReduceMax", ["probabilities"], "highest", axes=[1], keepdims=0),
        _node("Gather", ["probabilities", "reranker.fixed"], "probability.fixed", axis=1),
        _node("Sub", ["highest", "probability.fixed"], "lead"),
        _node("Less", ["lead", "min_lead"], "unclear"),
    ]
    return nodes + [_node("Where", ["unclear", f"{name}.fixed", f"{name}.predicted"], name) for name in names]


def _linear(source: str, layer: str, output: str) -> onnx.NodeProto:
    # Weights are stored [outputs, inputs].
    return _node("Gemm", [source, f"{layer}.weight", f"{layer}.bias"], output, transB=1)


def _node(operator: str, inputs: list[str], output: str, **attributes: int | list[int]) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)
