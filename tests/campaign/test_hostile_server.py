"""Servers that answer in every bad way: an answer or one clear error, soon, in little memory, and fit for the next."""

import resource
import time

import pytest

from corag.errors import CoragError, InputError
from corag.models.chat import served_tokens, server
from corag.models.chat.served_tokens import counting_server, ollama_tokens
from corag.readers.chat import OllamaReader, OpenAIReader
from corag.summarizers.chat import OllamaSummarizer, OpenAISummarizer
from corag.text.visible import visible
from corag.types import SummaryRequest
from tests.campaign.hostile_server import GOOD, MODES, HostileServer

pytestmark = pytest.mark.slow

LIMITS = {"timeout_s": 0.2, "max_reply_s": 0.3, "max_reply_mb": 4.0, "retries": 0}
SOON_S = 10.0
# The vocabulary of a model may have up to 128 MB.
MOST_MB = 300
REQUEST = SummaryRequest(("A text.",), ("a",), 50)


@pytest.fixture(scope="module")
def hostile():
    with HostileServer() as found:
        yield found


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    for name in ("OLLAMA_API_KEY", "OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "_CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(served_tokens, "_TIMEOUT_S", 0.2)


def clients(host):
    """Return what may be asked of a server: a name and a call each."""
    ollama = {"host": host, "model": "m", "tokenizer": "minilm", **LIMITS}
    openai = {"base_url": f"{host}/v1", "model": "m", "tokenizer": "minilm", **LIMITS}
    readers = [OllamaReader(**ollama), OpenAIReader(**openai)]
    for reader in readers:
        yield f"{reader.name} answers", lambda reader=reader: reader.answer("q?", "c").text
        yield f"{reader.name} streams", lambda reader=reader: "".join(reader.stream("q?", "c"))
        yield f"{reader.name} is there", lambda reader=reader: reader.chat.check() or ""
        yield f"{reader.name} has a window", lambda reader=reader: str(reader.chat.window_tokens or "")
    for summarizer in (OllamaSummarizer(**ollama), OpenAISummarizer(**openai)):
        yield f"{summarizer.name} sums up", lambda summarizer=summarizer: summarizer.summarize(REQUEST)
    yield "vocabulary", lambda: getattr(ollama_tokens(host, "m"), "name", "")
    yield "counts", lambda: getattr(counting_server(f"{host}/v1", "m"), "name", "")


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("mode", MODES)
def test_a_hostile_server(hostile, figure, mode):
    assert len(MODES) >= 40
    before_mb = peak_mb()
    for name, ask in clients(hostile.host):
        hostile.mode = MODES[mode]
        begun_s = time.perf_counter()
        try:
            answer = ask()
            assert visible(answer) == answer, f"{name}: {answer!r}"
            figure("hostile replies: answered", 1)
        except CoragError as error:
            assert not isinstance(error, InputError), f"{name}: {error}"
            assert "\n" not in str(error) and visible(str(error)) == str(error) and len(str(error)) < 1000
            assert hostile.host in str(error), f"{name}: {error}"
            figure("hostile replies: one clear error", 1)
        assert time.perf_counter() - begun_s < SOON_S, name
    assert peak_mb() - before_mb < MOST_MB
    hostile.mode = GOOD
    for reader in (OllamaReader(host=hostile.host, model="m", tokenizer="minilm"),
                   OpenAIReader(base_url=f"{hostile.host}/v1", model="m", tokenizer="minilm")):  # fmt: skip
        assert reader.answer("q?", "c").text == "Paris"
