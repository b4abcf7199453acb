"""Work for hours in minutes: real questions, an index of made chunks, memory and times along the way."""

import json
import os
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np

import corag
from corag import Chunk
from corag.errors import DataError
from corag.index import ChunkIndex
from corag.index.write import ChunkSource, write_index
from corag.text.data import DataFolder, find_data
from tests.effort import CAMPAIGN
from tests.experiments.worlds import DOCUMENTS, QUERIES

RECALL_AT = 20
_BLOCK = 1_000
_PASSAGES = 1_000 if CAMPAIGN else 20


@cache
def real():
    """Return passages, questions, and the passage of each question: of SQuAD, if it is here."""
    try:
        folder = DataFolder.open(find_data("squad"))
    except DataError:
        texts = [document["text"] for document in DOCUMENTS]
        return texts, [query["question"] for query in QUERIES], [0] * len(QUERIES)
    places = {name: place for place, name in enumerate(folder.documents)}
    asked = [query for query in folder.queries if query.split != "test"]
    random.Random(0).shuffle(asked)
    of = [places[query.gold[0].partition("#")[0]] for query in asked]
    return [document.text for document in folder.documents.values()], [query.question for query in asked], of


def private_mb(process="self"):
    """Return the memory that a process alone uses."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


def alone(call, *given):
    """Return what a function of this module returns in a process of its own, whose memory is its alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *given).result()


# --- Many questions ---


def many_questions(spelling, number, steps=20):
    """Select for so many questions about texts of their own; return memory and questions a second along the way."""
    selector = corag.selector(spelling)
    texts, questions, of = real()
    rng, found = random.Random(0), {"thousand questions": [], "a second": [], "MB": []}
    for step in range(steps):
        asked, pools = [], []
        for place in range(step * number // steps, (step + 1) * number // steps):
            row = place % len(questions)
            pool = [texts[of[row]], *rng.sample(texts, 9)]
            asked.append(f"{questions[row]} ({place})")
            pools.append([{"text": f"{text[:300]} {place}", "similarity": rng.uniform(0, 1)} for text in pool])
        begun_s = time.perf_counter()
        selections = selector.select_many(asked, pools, 128)
        took_s = time.perf_counter() - begun_s
        assert len(selections) == len(asked) and all(0 < one.cost_tokens <= 128 for one in selections)
        del asked, pools, selections
        found["thousand questions"].append((step + 1) * number / steps / 1000)
        found["a second"].append(number / steps / took_s)
        found["MB"].append(private_mb())
    return found


# --- A large index ---


class Made:
    """Chunks of which each joins a third of each of three real ones; its vector is a weighted mean of theirs."""

    name = "made"

    def __init__(self, folder):
        texts, file = real()[0][:_PASSAGES], folder / "vectors.npy"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            np.save(file, corag.embedder().embed(texts))
        self._words, self._vectors = [text.split() for text in texts], np.load(file)
        self.dimension = self._vectors.shape[1]

    def chunks(self, block):
        """Return a thousand chunks."""
        members, _, begins = self._drawn(block)
        chunks = []
        for row, (three, parts) in enumerate(zip(members, begins, strict=True), start=block * _BLOCK):
            words = []
            for own, begin in zip((self._words[member] for member in three), parts, strict=True):
                length = max(1, len(own) // 3)
                at = int(begin * (len(own) - length + 1))
                words += own[at : at + length]
            chunks.append(Chunk(f"made-{row}", f"Made chunk {row}\n{' '.join(words)}"))
        return chunks

    def vectors(self, block):
        """Return their unit vectors."""
        members, weights, _ = self._drawn(block)
        vectors = np.einsum("nk,nkd->nd", weights, self._vectors[members])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def embed(self, texts):
        """Return the vectors of made chunks by their texts."""
        rows = [divmod(int(text.partition("\n")[0].rpartition(" ")[2]), _BLOCK) for text in texts]
        blocks = {block: self.vectors(block) for block in {block for block, _ in rows}}
        return np.array([blocks[block][row] for block, row in rows])

    def _drawn(self, block):
        rng = np.random.default_rng([0, block])
        members = rng.integers(len(self._words), size=(_BLOCK, 3))
        return members, rng.dirichlet((1, 1, 1), size=_BLOCK), rng.random((_BLOCK, 3))


def build(folder, num_blocks):
    """Build the index of so many thousand chunks; return what it costs, the making of the chunks included."""
    made = Made(folder.parent)
    before_s = time.process_time()
    names = {f"block {number}": str(number) for number in range(num_blocks)}
    source = ChunkSource(names, lambda name: made.chunks(int(names[name])), f"made {num_blocks}")
    write_index(folder, source, made, batch_size=4 * _BLOCK)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"CPU s": time.process_time() - before_s, "peak MB": peak_mb}


def ask(folder, num_questions):
    """Return the times of a question by vectors and by both rankings, and the recall against exact search."""
    index, questions = ChunkIndex.open(folder), real()[1][:num_questions]
    vectors = corag.embedder().embed(questions)
    before_mb, found = private_mb(), {}
    for retrieval in ("vector", "hybrid"):
        waited = []
        for warm in (True, False):
            for question, vector in zip(questions, vectors, strict=True):
                begun_s = time.perf_counter()
                index.retrieve(question, vector, RECALL_AT, retrieval)
                if not warm:
                    waited.append(1000 * (time.perf_counter() - begun_s))
        found[f"{retrieval} ms"] = median(waited)
    found["MB"] = private_mb() - before_mb
    retrieved = [{one.chunk.id for one in index.retrieve("x", vector, RECALL_AT, "vector")} for vector in vectors]
    made, best = Made(folder.parent), [[] for _ in vectors]
    for number in range(len(index) // _BLOCK):
        cosines = vectors @ made.vectors(number).T
        for row, own in enumerate(np.argpartition(-cosines, RECALL_AT)[:, :RECALL_AT]):
            ranked = [*best[row], *((float(cosines[row, place]), number * _BLOCK + int(place)) for place in own)]
            best[row] = sorted(ranked, reverse=True)[:RECALL_AT]
    hits = [len({f"made-{place}" for _, place in own} & ids) for own, ids in zip(best, retrieved, strict=True)]
    return found | {"recall": sum(hits) / RECALL_AT / len(hits)}


# --- Requests ---


def requests():
    """Yield paths and bodies of requests, each with a question of its own as long as there are some."""
    texts, questions, of = real()
    rng = random.Random(1)
    for number in count():
        row = number % len(questions)
        pool = [texts[of[row]], *rng.sample(texts, min(9, len(texts)))]
        rng.shuffle(pool)
        body = {"query": questions[row], "budget_tokens": 256}
        yield ("/v1/select", body | {"texts": pool}) if number % 2 else ("/v1/rerank", body | {"documents": pool})


# --- Results ---


def write_results(folder, name, found):
    """Write figures as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    load = [round(value, 1) for value in os.getloadavg()]
    content = {"load of the machine": load, "found": found}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
