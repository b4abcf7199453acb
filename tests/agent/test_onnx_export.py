"""The ONNX model says what `ConfigurationAgent.predict` says: by onnx's own evaluator, and run by OpenVINO."""

import json

import numpy as np
import pytest

import agent
from agent import AgentConfig, ConfigurationAgent, Ranges
from tests.agent.worlds import DIM, random_agent, random_weights, toy_config

onnx = pytest.importorskip("onnx", reason="the ONNX export is optional")
SETTINGS = ("iterations", "exploration", "cost_weight")


def features(num_rows, dim=DIM, seed=1):
    return np.random.default_rng(seed).normal(size=(num_rows, dim)).astype(np.float32)


def by_onnx(model, rows):
    from onnx.reference import ReferenceEvaluator

    names = [output.name for output in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(names, {"features": rows}), strict=True))


def check_agrees(found, agent_, rows):
    expected = agent_.predict(rows)
    chosen = [agent_.config.configurations[label] for label in found["configuration"]]
    assert chosen == [one.configuration for one in expected]
    probabilities = [list(one.probabilities.values()) for one in expected]
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
    for name in SETTINGS:
        # Whole numbers of iterations are equal or, at a tie of rounding, neighbours.
        wanted, atol = [getattr(one, name) for one in expected], 1 if name == "iterations" else 1e-5
        assert found[name].shape == (len(rows),)
        np.testing.assert_allclose(found[name], wanted, atol=atol, rtol=0)
    differ = np.mean(found["iterations"] != [one.iterations for one in expected])
    assert differ <= 0.01


@pytest.mark.parametrize("changes", [{"hidden": ()}, {"hidden": (4, 4, 4)}, {"min_lead": 0.2}])
def test_agrees_with_predict(changes, num_rows=200):
    trained = random_agent(toy_config(**changes), scale=0.5)
    found = by_onnx(agent.to_onnx(trained), features(num_rows))
    assert found["iterations"].dtype == found["configuration"].dtype == np.int64
    check_agrees(found, trained, features(num_rows))


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")  # of onnx's own sigmoid
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_settings_stay_in_their_ranges(scale):
    ranges = Ranges(iterations=(3, 7), exploration=(0.1, 0.3), cost_weight=(0.2, 0.2))
    config = toy_config(ranges=ranges, hidden=(8,))
    trained = ConfigurationAgent(config, random_weights(config, scale=scale))
    found = by_onnx(agent.to_onnx(trained), features(100))
    for name in SETTINGS:
        low, high = np.array(getattr(ranges, name), dtype=found[name].dtype)
        assert ((found[name] >= low) & (found[name] <= high)).all()
    assert set(found["iterations"].tolist()) <= {3, 4, 5, 6, 7}
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, atol=1e-6)


def test_the_file_explains_itself(tmp_path):
    trained = random_agent()
    path = agent.export_onnx(trained, tmp_path / "deep" / "agent.onnx")
    model = onnx.load(path)
    [kept] = model.metadata_props
    assert kept.key == "corag"
    assert AgentConfig.from_dict(json.loads(kept.value)) == trained.config
    assert [one.name for one in model.graph.output] == ["configuration", "probabilities", *SETTINGS]
    assert [file.name for file in path.parent.iterdir()] == ["agent.onnx"]


def test_another_runtime_reads_the_file(tmp_path):
    openvino = pytest.importorskip("openvino", reason="no runtime to run it")
    trained = random_agent(toy_config(min_lead=0.2))
    path = agent.export_onnx(trained, tmp_path / "agent.onnx")
    # By default it would compute in bf16 where the CPU can.
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    rows = features(200)
    result = compiled(rows)
    check_agrees({output.get_any_name(): result[output] for output in compiled.outputs}, trained, rows)


def test_without_settings_only_the_choice_is_exported():
    trained = random_agent(toy_config(ranges=None, min_lead=0.2), scale=0.5)
    found = by_onnx(agent.to_onnx(trained), features(50))
    expected = [one.configuration for one in trained.predict(features(50))]
    assert [trained.config.configurations[label] for label in found["configuration"]] == expected
    assert found.keys() == {"configuration", "probabilities"}
