"""Every full configuration from one end to the other: small models and small data under the real names,
and a chat server on loopback in place of the language models."""

import json
import re

import pytest

pytest.importorskip("lancedb")
pytest.importorskip("sentence_transformers")

from corag.cli.main import main
from corag.models.known import BGE_M3, KNOWN_RERANKERS
from corag.text.data import DataFolder
from experiments.labels import label as labelling
from experiments.papers import run as driver
from experiments.papers.cells import cells_of
from experiments.papers.needs import needs_of, sets_of
from experiments.papers.study import SHELVES, find_study, study_files
from tests.chat_server import ChatServer, Reply
from tests.corag.models.test_embedders import save_sentence_transformer
from tests.corag.models.worlds import put_on_hub, small_hub
from tests.experiments.papers.worlds import MEASURED, write_set
from tests.experiments.test_paper_models import teach

pytestmark = pytest.mark.slow

PAPERS = [name for name in MEASURED if study_files()[name].parent == SHELVES[0]]
REPLY = 'Varn {"grade": 0.5, "score": 0.5, "verdict": "yes", "reason": "it stands there"}'


def covering(study):
    """So few cells of a study that every value of every axis is in one."""
    cells, left = cells_of(study), {(axis, value) for axis, values in study.axes.items() for value in values}
    chosen = []
    while left or not chosen:
        best = max(cells, key=lambda cell: len(left & set(cell.values.items())))
        if chosen and not left & set(best.values.items()):
            break
        chosen.append(best)
        left -= set(best.values.items())
    return chosen


def taught(table):
    """Labels with another best reranker for each question: models with random weights are all of the same use."""
    out = table.with_name("taught.parquet")
    teach(table, out)
    return out


def write_real(root):
    """Write small data folders of the sets that full configurations name."""
    wanted = {}
    for name in MEASURED:
        study = find_study(name)
        for data, split in sets_of(study, cells_of(study)):
            wanted.setdefault(data, set()).add(split)
    for name, splits in wanted.items():
        write_set(root / name, splits)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Data sets, models and a server; the folder of the results."""
    folder = tmp_path_factory.mktemp("full")
    needed = [need for name in MEASURED for need in needs_of(find_study(name))]
    served = tuple({need.name for need in needed if need.kind == "LLM"})
    with (
        small_hub(folder / "models", folder / "hub"),
        ChatServer(Reply(REPLY), models=served, about={}) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        tiny = save_sentence_transformer(folder / "tiny")
        for name in {need.name for need in needed if need.kind == "model"} - {*KNOWN_RERANKERS, BGE_M3.name}:
            put_on_hub(folder / "hub", name, tiny)
        patch.setenv("CORAG_CACHE", str(folder / "cache"))
        patch.setenv("CORAG_DATA", str(folder / "sets"))
        patch.setenv("OLLAMA_HOST", server.host)
        patch.setenv("OPENAI_BASE_URL", server.base_url)
        patch.setenv("OPENAI_API_KEY", "none")
        # Converting so many models takes longer than running them; other tests do.
        patch.setattr("corag.models.runtime.openvino_has", lambda _: False)
        patch.setattr(driver, "cells_of", covering)
        patch.setattr(labelling, "label", lambda config, label=labelling.label: taught(label(config)))
        write_real(folder / "sets")
        folder.joinpath("studies").mkdir()
        for name, file in study_files().items():
            text = re.sub(r"base_url=[^,)\"]+", f"base_url={server.base_url}", file.read_text())
            # Its tokenizer would have to be fetched.
            text = re.sub(r"tokenizer: gpt-4o", "tokenizer: estimate", text)
            text = re.sub(r"^  num_candidates: 20$", "  num_candidates: 4", text, flags=re.MULTILINE)
            # Of a grid that many questions are worth.
            text = re.sub(r"(iterations|explorations|cost_weights): ([\d.]+),\S+", r"\1: '\2'", text)
            (folder / "studies" / f"{name}.yaml").write_text(text)
        yield folder


@pytest.mark.parametrize("name", PAPERS)
def test_a_full_configuration_runs(world, name, capsys):
    command = ["reproduce", str(world / "studies" / f"{name}.yaml"), "--limit", "1", "--out", str(world / "out")]
    assert main([*command, "--trust_remote_code", "--quiet"]) == 0, capsys.readouterr().err
    record = json.loads((world / "out" / name / "result.json").read_text())
    assert not record["standin"] and (record["cells"] or record["lines"])
    study = find_study(name)
    for axis, values in study.axes.items():
        if record["cells"]:
            assert {cell["values"][axis] for cell in record["cells"]} == set(values)
    if record["cells"]:
        assert {cell["values"]["method"] for cell in record["cells"]} == set(study.methods)


def test_every_set_is_in_the_form_of_its_source(world):
    for folder in (world / "sets").iterdir():
        assert DataFolder.open(folder).queries
