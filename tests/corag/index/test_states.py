"""Token states beside an index: stored, kept up to date, and used by what asks it."""

import shutil

import pytest

import corag
import corag.index.states as keeping
from corag.cli.main import main
from corag.errors import InputError
from corag.index import ChunkIndex, stored_states
from corag.index.states import has_states, states_file, update_states
from corag.memory import forget
from corag.models.engine.engine import Engine
from corag.models.minilm import minilm_encoder
from corag.models.states import STATES
from corag.types import Answer

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")
pytest.importorskip("lancedb")

QUESTION = "Which mineral is green?"


class Silent:
    """A reader without a model."""

    name = "silent"

    def answer(self, question, context):
        return Answer(context[:20])


@pytest.fixture
def index(small_index, tmp_path):
    return ChunkIndex.open(shutil.copytree(small_index, tmp_path / "index"))


def tokens_run(monkeypatch) -> list[int]:
    """Tokens of each text that goes through a model from now on."""
    lengths: list[int] = []
    run = Engine.run

    def noted(engine, ids, *given, **settings):
        lengths.extend(map(len, ids))
        return run(engine, ids, *given, **settings)

    monkeypatch.setattr(Engine, "run", noted)
    return lengths


def test_they_are_stored_once_and_go_on_after_an_interruption(index, monkeypatch):
    def stop(done, total):
        assert total == len(index)
        if done == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(keeping, "_BATCH", 4)
    assert not has_states(index.uri)
    with pytest.raises(KeyboardInterrupt):
        update_states(index, report=stop)
    first = update_states(index)
    assert (first.num_texts, first.num_encoded) == (len(index), len(index) - 8)
    assert has_states(index.uri) and first.nbytes > 768 * len(index)
    assert update_states(index).num_encoded == 0


@pytest.mark.parametrize("selector", ["corag", "naive(reranker=minilm-softsim)", "mmr"])
def test_answers_are_the_same_and_no_candidate_is_encoded(index, monkeypatch, selector):
    forget()
    plain = corag.ask(QUESTION, index, selector=selector, reader=Silent(), budget_tokens=64)
    update_states(index)
    forget()
    lengths = tokens_run(monkeypatch)
    known = corag.ask(QUESTION, index, selector=selector, reader=Silent(), budget_tokens=64)
    assert known.selection.ids == plain.selection.ids and known.answer == plain.answer
    assert known.selection.value == pytest.approx(plain.selection.value, abs=1e-3)  # half precision
    # The question, here and there with [CLS] and [SEP], and no passage.
    (asked,) = minilm_encoder().tokenize([QUESTION]).ids
    assert set(lengths) <= {len(asked) + 2} and lengths
    assert STATES.get() is None


def test_a_block_of_ones_own(index, monkeypatch):
    update_states(index)
    selector = corag.selector("naive", reranker="minilm-multihop")
    candidates = [corag.Candidate(chunk) for chunk in index.chunks()]
    forget()
    lengths = tokens_run(monkeypatch)
    with stored_states(index.uri):
        selector.select(QUESTION, candidates, 64)
        # An index without states leaves those around it.
        with stored_states(index.uri + "-other"):
            assert STATES.get() is not None
    assert len(lengths) == 1
    forget()
    selector.select(QUESTION, candidates, 64)
    assert len(lengths) > len(candidates)


def test_a_file_of_another_kind_is_left_alone(index, caplog):
    place = states_file(index.uri)
    place.write_text("no database, but long enough to be taken for one" * 99)
    reply = corag.ask(QUESTION, index, reader=Silent(), budget_tokens=64)
    assert reply.selection.chunks
    assert "token states are computed anew: the cache file" in caplog.text and "delete it" in caplog.text


def test_object_storage_has_none(index):
    assert not has_states("s3://bucket/index")
    with stored_states("s3://bucket/index"):
        assert STATES.get() is None
    index.uri = "s3://bucket/index"
    with pytest.raises(InputError, match="is on object storage; token states need one in a local folder"):
        update_states(index)


def test_the_command_keeps_them_up_to_date(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, out = tmp_path / "notes", tmp_path / "index"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.md").write_text(f"# Note {name}\n\nA text about {name}.\n")
    make = ["index", "--data", str(folder), "--out", str(out), "--quiet"]
    assert main(make) == 0
    assert "token states" not in capsys.readouterr().out
    assert main([*make, "--states"]) == 0
    assert "token states: 3 texts encoded; 3 texts stored, 0 MB" in capsys.readouterr().out
    (folder / "two.md").write_text("# Note two\n\nNow it says something else.\n")
    (folder / "three.md").unlink()
    assert main(make) == 0
    assert "token states: 1 texts encoded; 2 texts stored" in capsys.readouterr().out
    assert main(make) == 0
    assert "token states: nothing to do; 2 texts stored" in capsys.readouterr().out
