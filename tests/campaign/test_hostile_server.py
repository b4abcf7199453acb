"""Servers that answer in every bad way: an answer or one clear error, soon, in little memory, and fit for the next."""

import hashlib
import re
import resource
import time

import pytest

from corag.errors import CoragError, DataError, InputError
from corag.models.chat import served_tokens
from corag.models.chat.served_tokens import counting_server, ollama_tokens
from corag.readers.chat import OllamaReader, OpenAIReader
from corag.summarizers.chat import OllamaSummarizer
from corag.text.visible import visible
from corag.types import SummaryRequest
from experiments.data.sources.fetch import from_web
from tests.campaign.hostile_server import GOOD, MODES, HostileServer, whole

pytestmark = pytest.mark.slow

LIMITS = {"timeout_s": 0.5, "max_reply_s": 0.5, "max_reply_mb": 4.0, "retries": 0}
SOON_S = 10.0
# The vocabulary of a model may have up to 128 MB.
MOST_MB = 300
CONTENT = b"What was asked for."
MD5 = hashlib.md5(CONTENT).hexdigest()
REQUEST = SummaryRequest(("A text.",), ("a",), 50)


@pytest.fixture(scope="module")
def hostile():
    with HostileServer() as found:
        yield found


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(served_tokens, "_TIMEOUT_S", 0.2)


@pytest.fixture(scope="module")
def readers(hostile):
    """The readers of both protocols, which outlive what one server after the other does to them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OLLAMA_API_KEY", "OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            patch.delenv(name, raising=False)
        settings = {"model": "m", "tokenizer": "minilm", **LIMITS}
        yield OllamaReader(host=hostile.host, **settings), OpenAIReader(base_url=f"{hostile.host}/v1", **settings)


@pytest.fixture(scope="module")
def calls(hostile, readers):
    """What may be asked of a server: a name and a call each."""
    found = {}
    for reader in readers:
        found[f"{reader.name} answers"] = lambda reader=reader: reader.answer("q?", "c").text
        found[f"{reader.name} streams"] = lambda reader=reader: "".join(reader.stream("q?", "c"))
        found[f"{reader.name} is there"] = lambda reader=reader: reader.chat.check() or ""
    summarizer = OllamaSummarizer(host=hostile.host, model="m", tokenizer="minilm", **LIMITS)
    found["a summary"] = lambda: summarizer.summarize(REQUEST)
    found["vocabulary"] = lambda: getattr(ollama_tokens(hostile.host, "m"), "name", "")
    found["counts"] = lambda: getattr(counting_server(f"{hostile.host}/v1", "m"), "name", "")
    return found


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
    assert len(MODES) >= 40
    before_mb = peak_mb()
    hostile.mode = MODES[mode]
    for name, ask in calls.items():
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
    for reader in readers:
        assert "Paris" in map(answer_of, [reader] * 5)


@pytest.mark.parametrize("mode", [mode for mode in MODES if not re.search("endless|drop by drop|for ever", mode)])
def test_a_hostile_server_of_files(hostile, monkeypatch, tmp_path, figure, mode):
    import huggingface_hub.constants as constants
    from huggingface_hub.utils import close_session

    monkeypatch.setenv("CORAG_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    # Between one try and the next.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hostile.mode = MODES[mode]
    for md5 in ("", MD5):
        try:
            assert from_web(f"{hostile.host}/{md5}f.bin", md5, quiet=True).stat().st_size > 0 == len(md5)
            figure("hostile files: taken as they came", 1)
        except DataError as error:
            assert "\n" not in str(error) and visible(str(error)) == str(error) and len(str(error)) < 1000
            assert hostile.host in str(error)
            figure("hostile files: one clear error", 1)
    hostile.mode = whole(lambda path: CONTENT)
    # A connection that the server has closed meanwhile is not taken up again.
    close_session()
    assert from_web(f"{hostile.host}/{MD5}f.bin", MD5, quiet=True).read_bytes() == CONTENT
    assert not list(tmp_path.rglob(f"*{MD5}f.bin.part"))
