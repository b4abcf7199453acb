"""What a checkpoint or an index names is data: it runs no code, reaches no server, fetches and reads nothing."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import lancedb
import pytest

import agent
import corag
from common.configuration import parse
from common.storage import seal_again
from corag import registry
from corag.errors import CoragError, DataError, ModelError
from corag.index import ChunkIndex
from corag.untrusted import check_untrusted
from tests.experiments.worlds import save_small_agent


@pytest.fixture
def folder(tmp_path):
    """A model whose code would leave a mark."""
    (tmp_path / "evil").mkdir()
    code = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    (tmp_path / "evil" / "modeling.py").write_text(code)
    classes = {
        "AutoConfig": "modeling.C",
        "AutoModelForSequenceClassification": "modeling.M",
        "AutoModel": "modeling.M",
    }
    (tmp_path / "evil" / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": classes}))
    yield tmp_path / "evil"
    assert not (tmp_path / "ran").exists()


ROWS = {}
for row in Path(__file__).with_name("untrusted.txt").read_text(encoding="utf-8").splitlines():
    if row and not row.startswith("#"):
        ROWS.setdefault(row.partition(" ")[0], []).append(row.partition(" ")[2])
LONG = [f"mmr(embedder={'a' * 5000})", f"top-k(unit={'a' * 5000})", "self-route(" * 300 + ")" * 300]


def attacks(folder):
    """Pairs of a kind of part and what a file may not name as such."""
    for kind in ("reranker", "reader", "embedder", "selector"):
        yield from ((kind, row.replace("FOLDER", str(folder))) for row in ROWS[kind])
    yield from (("selector", part) for part in LONG)
    yield "reranker", 3


def test_no_file_may_name(folder):
    tables = {table.kind: table for table in registry.TABLES}
    for kind, part in attacks(folder):
        with pytest.raises(ModelError) as caught:
            check_untrusted(tables[kind], part, "FILE")
        assert "FILE" in str(caught.value), part


@pytest.mark.parametrize("part", ROWS["limited"])
def test_work_that_others_name_has_limits(part):
    with pytest.raises(ModelError, match="may not choose"):
        check_untrusted(registry.SELECTORS, part, "FILE")


def test_a_model_of_which_only_a_part_is_here_would_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    there = tmp_path / "models--own--model"
    (there / "refs").mkdir(parents=True)
    (there / "refs" / "main").write_text("abc")
    model = there / "snapshots" / "abc"
    model.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    parts = [(registry.RERANKERS, "own/model"), (registry.EMBEDDERS, "sentence-transformers(model=own/model)")]
    shards = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    first = {"model-1.safetensors": "", "model.safetensors.index.json": json.dumps(shards)}
    for added in (first, {"model-2.safetensors": ""}):
        for table, part in parts:
            with pytest.raises(ModelError, match="own/model"):
                check_untrusted(table, part, "FILE")
        for name, content in added.items():
            (model / name).write_text(content)
    for table, part in [*parts, (registry.TOKENIZERS, "own/model")]:
        assert check_untrusted(table, part, "FILE") == part


@pytest.mark.parametrize("part", ROWS["allowed"])
def test_a_file_may_name_what_is_here(part):
    assert corag.selector(check_untrusted(registry.SELECTORS, part, "FILE")).name


def tampered(path, **settings):
    """Write a checkpoint with other settings, and return its folder."""
    shutil.rmtree(path, ignore_errors=True)
    save_small_agent(path)
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**record, **settings}))
    seal_again(path)
    return path


def test_a_checkpoint_runs_nothing(folder, tmp_path):
    record = json.loads((tampered(tmp_path / "agent") / "config.json").read_text())
    names = record["configurations"]
    texts = ["Berlin is in Germany.", "Paris is in France."]
    embedder = f'sentence-transformers(model="{folder}", trust_remote_code=true)'
    with pytest.raises(ModelError):
        corag.select("Where is Berlin?", texts, 20, agent=tampered(tmp_path / "agent", embedder=embedder))
    spelled = [part for kind, part in attacks(folder) if kind == "selector" and isinstance(part, str)]
    for attack in map(str, map(parse, spelled[::4])):
        changed = {"configurations": [names[0], attack]}
        for given in (changed, changed | {"fallback": attack}):
            with pytest.raises(CoragError):
                corag.select("Where is Berlin?", texts, 20, agent=tampered(tmp_path / "agent", **given))


def test_an_agent_predicts_no_more_work_than_a_file_may_name(tmp_path):
    name = "corag(unit=passage, reranker=bm25)"
    ranges = agent.Ranges((1, 10**9), (0.0, 1.0), (0.0, 1.0))
    config = agent.AgentConfig((name,), name, ranges=ranges, fallback_settings=(10**9, 0.1, 0.1))
    agent.save(tmp_path / "agent", agent.ConfigurationAgent(config, {}), "card")
    with pytest.raises(ModelError, match=r"iterations of 1000000000.*200"):
        corag.select("Where is Berlin?", ["Berlin is in Germany."], 20, agent=str(tmp_path / "agent"))


def test_an_index_that_names_an_embedder_runs_nothing(folder, tmp_path):
    for name in (f'sentence-transformers(model="{folder}", trust_remote_code=true)', str(folder)):
        index = ChunkIndex.build(tmp_path / "index", [corag.Chunk("a", "Berlin")], corag.embedder(), overwrite=True)
        index.manifest = replace(index.manifest, embedder_name=name)
        with pytest.raises(ModelError, match="index"):
            corag.ask("Who?", index)


@pytest.fixture
def index_folder(tmp_path):
    chunks = [corag.Chunk(str(number), f"Berlin has district {number}.") for number in range(3)]
    ChunkIndex.build(tmp_path / "index", chunks, corag.embedder())
    return tmp_path / "index"


@pytest.mark.parametrize("base", ["folder", "s3://corag-no-such-bucket/table"])
@pytest.mark.parametrize("table", ["corag_chunks", "corag_manifest"])
def test_an_index_does_not_read_from_a_base_outside_its_folder(index_folder, tmp_path, base, table):
    clone = tmp_path / "clone"
    shutil.copytree(index_folder, clone)
    shutil.rmtree(clone / f"{table}.lance")
    source = str(index_folder / f"{table}.lance")
    lancedb.connect(clone).clone_table(table, source)
    if base == "folder":
        base = source
    else:
        # A path of the same length, as its length stands before it.
        base = base.ljust(len(source), "x")[: len(source)]
        for manifest in (clone / f"{table}.lance" / "_versions").glob("*.manifest"):
            manifest.write_bytes(manifest.read_bytes().replace(source.encode(), base.encode()))
    uses = [
        lambda: ChunkIndex.open(clone),
        lambda: corag.ask("Where is Berlin?", clone),
        lambda: ChunkIndex.build(clone, [corag.Chunk("a", "Bonn")], corag.embedder(), overwrite=True),
    ]
    for use in uses:
        with pytest.raises(DataError, match=f"{re.escape(base[:100])}.*outside of the index"):
            use()


@pytest.mark.parametrize("linked", ["corag_chunks.lance", "corag_chunks.lance/data", "corag_manifest.lance/_versions"])
def test_an_index_does_not_follow_links_out_of_its_folder(index_folder, tmp_path, linked):
    (index_folder / linked).rename(tmp_path / "elsewhere")
    (index_folder / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="elsewhere"):
        ChunkIndex.open(index_folder)
