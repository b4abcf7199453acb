"""Model servers that answer in every bad way: an answer or one clear error, soon, in little memory, ready again."""

import resource
import time

import numpy as np
import pytest

from corag.errors import CoragError, InputError
from corag.models import servers
from corag.models.embedders import OllamaEmbedder, OpenAIEmbedder
from corag.readers.chat import OllamaReader, OpenAIReader
from corag.summarizers.chat import OllamaSummarizer, OpenAISummarizer
from corag.types import SummaryRequest
from tests.campaign.hostile_server import GOOD, MODES, PAUSE_S, HostileServer, open_reply, said, status
from tests.chat_server import ChatServer, Reply

pytestmark = pytest.mark.slow

SOON_S = 20.0
MOST_MB = 100
REQUEST = SummaryRequest(("A text.",), 50)


@pytest.fixture(scope="module", autouse=True)
def small_replies():
    """Replies have to be small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers, "MAX_BYTES", 2**20)
        yield


@pytest.fixture(scope="module")
def hostile():
    with HostileServer() as found:
        yield found


def parts(host, of_ollama, of_openai, **settings):
    """Return a part that asks by each protocol."""
    settings = {"model": "m", "timeout_s": 0.5} | settings
    return of_ollama(host=host, **settings), of_openai(base_url=f"{host}/v1", **{"retries": 0} | settings)


@pytest.fixture(scope="module")
def readers(hostile):
    """Readers, which outlive what one server after the other does to them."""
    return parts(hostile.host, OllamaReader, OpenAIReader, tokenizer="minilm")


@pytest.fixture(scope="module")
def calls(hostile, readers):
    """What may be asked of a server: a name and a call each."""
    found = {}
    for reader in readers:
        found[f"{reader.name} answers"] = lambda reader=reader: reader.answer("q?", "c").text
        found[f"{reader.name} streams"] = lambda reader=reader: "".join(reader.stream("q?", "c"))
        found[f"{reader.name} is there"] = reader.check
    for summarizer in parts(hostile.host, OllamaSummarizer, OpenAISummarizer, tokenizer="minilm"):
        found[f"{summarizer.name} summarizes"] = lambda summarizer=summarizer: summarizer.summarize(REQUEST)
    for embedder in parts(hostile.host, OllamaEmbedder, OpenAIEmbedder):
        found[f"{embedder.name} embeds"] = lambda embedder=embedder: unit_vectors(embedder)
    return found


def unit_vectors(embedder):
    lengths = np.linalg.norm(embedder._vectors(["a", "b"]), axis=1)
    assert len(lengths) == 2 and np.all((abs(lengths - 1) < 1e-6) | (lengths == 0))


def answer_of(reader):
    """Return a reader's answer; on a busy machine it may be too slow for the limits."""
    try:
        return reader.answer("q?", "c").text
    except CoragError as error:
        return str(error)


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("mode", MODES)
def test_a_hostile_server(hostile, readers, calls, figure, mode):
    before_mb = peak_mb()
    hostile.mode = MODES[mode]
    for name, ask in calls.items():
        begun_s = time.perf_counter()
        try:
            answer = ask()
            assert answer is None or str(answer).encode(), name
            figure("hostile replies: taken", 1)
        except CoragError as error:
            said = str(error)
            assert not isinstance(error, InputError), f"{name}: {said}"
            assert "\n" not in said and len(said) < 1000 and said.isprintable() and hostile.host in said, name
            figure("hostile replies: one clear error", 1)
        assert time.perf_counter() - begun_s < SOON_S, name
    assert peak_mb() - before_mb < MOST_MB
    hostile.mode = GOOD
    for reader in readers:
        assert "Paris" in map(answer_of, [reader] * 5)


def test_a_redirect_is_not_followed(hostile, readers):
    with ChatServer(Reply("Paris"), models=("m",)) as other:
        for path in ("/api/chat", "/v1/chat/completions"):
            hostile.mode = status("307 Temporary Redirect", f"Location: {other.host}{path}")
            for reader in readers:
                with pytest.raises(CoragError, match="HTTP 307"):
                    reader.answer("q?", "c")
    assert not other.requests


def test_a_reply_that_never_ends_is_given_up(hostile, readers, monkeypatch):
    monkeypatch.setattr(servers, "MAX_S", 20 * PAUSE_S)
    hostile.mode = lambda path: iter([open_reply(), *(said(path, "a", done=False) for _ in range(1000))])
    for reader in readers:
        begun_s = time.perf_counter()
        with pytest.raises(CoragError, match="not ended"):
            reader.answer("q?", "c")
        assert time.perf_counter() - begun_s < 5
