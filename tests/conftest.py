import os
import re
import signal
from collections import Counter

import pytest
from hypothesis import settings

from tests.effort import FULL

# Nothing here may ask a hub or a tracker, whatever the machine allows, and no key, address or proxy of it is known.
for name in list(os.environ):
    if name.lower().startswith(("openai_", "ollama_", "wandb_", "corag_api_key", "http_proxy", "all_proxy")):
        del os.environ[name]
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs tests in the background has them, and all processes that they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure.
settings.register_profile("usual", deadline=None, max_examples=30)
settings.register_profile("full", deadline=None, max_examples=300)
settings.load_profile("full" if FULL else "usual")


WHOLLY_SLOW = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """A module whose tests are all slow is not even imported where slow tests are left out."""
    if config.option.markexpr == "not slow" and collection_path.suffix == ".py":
        return bool(WHOLLY_SLOW.search(collection_path.read_text())) or None
    return None


def pytest_collection_modifyitems(items):
    """Files with many slow tests run first, so that at the end no process is left alone with one."""
    num_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -num_slow[item.path])


@pytest.fixture(autouse=True)
def warned_of_nothing():
    """A warning that is given once per process is given once per test."""
    from corag.optional import warn_once

    warn_once.cache_clear()


@pytest.fixture
def encoded(monkeypatch):
    """The ids of all texts that go through our own encoder."""
    from corag.models.engine import Engine

    seen, run = [], Engine.run
    monkeypatch.setattr(Engine, "run", lambda self, ids, *more, **how: seen.extend(ids) or run(self, ids, *more, **how))
    return seen


@pytest.fixture(scope="session")
def small_data(tmp_path_factory):
    """A data folder of twenty passages and twelve questions; read only."""
    from tests.experiments.worlds import write_folder

    return write_folder(tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="session")
def small_index(tmp_path_factory, small_data):
    """Where an index of that folder lies, cut into chunks of at most 24 tokens; read only."""
    import corag
    from corag.index import update_index
    from corag.text.chunking import ChunkConfig

    uri = tmp_path_factory.mktemp("small") / "index"
    update_index(small_data, uri, corag.embedder(), ChunkConfig(24))
    return uri


@pytest.fixture(scope="session")
def small_checkpoint(tmp_path_factory):
    """The folder of an agent with random weights; read only."""
    from tests.experiments.worlds import save_small_agent

    return save_small_agent(tmp_path_factory.mktemp("small") / "agent")
