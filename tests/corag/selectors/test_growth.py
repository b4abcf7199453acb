"""Five thousand candidates: what selectors do beside the models takes seconds, not minutes, and megabytes."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import corag
from corag.selectors.problem import promising
from tests.fakes import HashReranker, SignEmbedder
from tests.paths import ROOT
from tests.processes import environment

pytestmark = pytest.mark.slow

CPU_S, MEGABYTES = 20.0, 750
"""Far beyond what the slowest takes on an idle core (the lab notebook has the figures): what grew with the square of
the candidates would take minutes. `self-route` has a reader in memory."""
CODE = """
import json, random, re, sys, time
import corag
from tests.corag.rerankers.evidence_worlds import WordEncoder
from tests.fakes import HashEmbedder

names = sys.argv[1].split(";")
rng = random.Random(0)
words = "the a of to in river city lake pump valve open close turn water power high low near north south people".split()
texts = [" ".join(" ".join(rng.choices(words, k=12)).capitalize() + "." for _ in range(6)) for _ in range(5000)]
offered = [corag.Candidate(corag.Chunk(f"c{n}", text), 1 - n / 5000) for n, text in enumerate(texts)]
cheap = {
    "embedder": HashEmbedder(),
    "reranker": "bm25",
    "summarizer": corag.summarizer("extractive", encoder=WordEncoder()),
}
seconds = {}
for name in names:
    selector = corag.SELECTORS.make(name, defaults=cheap)
    selector.select("Where is the river?", offered[:5], 256)  # imports
    begun = time.process_time()
    try:
        assert selector.select("Where is the river near the city?", offered, 1024).cost_tokens <= 1024
    except corag.errors.InputError as error:
        assert "max_orders" in str(error)
    seconds[name] = time.process_time() - begun
# Not `ru_maxrss`, which begins with that of the process that started this one.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps([seconds, peak_kb / 1024]))
"""
NAMES = [name for name in corag.SELECTORS.names if name not in ("raptor", "corag-fixed")]
"""`raptor` asks a tree of the whole corpus, and `corag-fixed` is `corag`."""


@pytest.mark.timeout(600)
def test_five_thousand_candidates():
    names = [f"{name}(agent=none)" if name == "corag" else name for name in NAMES]
    command = [sys.executable, "-c", CODE, ";".join([*names, "naive(unit=sentence)", "upper(max_length=1)"])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stderr
    seconds, megabytes = json.loads(done.stdout)
    assert {name: spent for name, spent in seconds.items() if spent > CPU_S} == {}
    assert megabytes < MEGABYTES


PUMPS = [f"Pump {number} is here. It is number {number} of all." for number in range(5000)]
ASKED = "Where is pump 4711?"


@pytest.mark.parametrize("method", ["mmr", "similarity-cutoff", "crag", "corag(agent=none)", "naive(unit=sentence)"])
def test_of_many_texts_models_read_the_promising(method):
    embedder, reranker = SignEmbedder(), HashReranker()
    selector = corag.SELECTORS.make(method, defaults={"embedder": embedder, "reranker": reranker})
    assert selector.select(ASKED, PUMPS, 64).cost_tokens > 0
    read = {*embedder.embedded, *reranker.asked}
    assert any(PUMPS[4711].startswith(text) for text in read if text)
    assert len({PUMPS.index(text) for text in read if text in PUMPS}) <= 100


def test_what_is_promising():
    by_words = promising(ASKED, [corag.Candidate(corag.Chunk(text, text)) for text in PUMPS], 64)
    assert [one.chunk.text for one in by_words] == [PUMPS[4711], *PUMPS[:99]]  # equals stay as they were given
    scored = [replace(one, similarity=-abs(n - 50) / 5000) for n, one in enumerate(by_words)]
    assert promising(ASKED, scored, 64) is scored  # as many as are read
    many = [corag.Candidate(corag.Chunk(str(n), "x"), n / 5000, rank=4999 - n) for n in range(5000)]
    assert promising(ASKED, many, 64) == many[: -128 * 4 - 1 : -1]
    assert promising(ASKED, [replace(one, rank=n) for n, one in enumerate(many)], 64) == [
        replace(one, rank=n) for n, one in enumerate(many[: 128 * 4])
    ]


def test_what_no_model_reads_is_not_filtered():
    assert len(corag.selector("full").select(ASKED, PUMPS[:300], 10**6).chunks) == 300
    assert len(corag.select(ASKED, PUMPS[:300], 10**6, method="naive", reranker="bm25").chunks) == 300
