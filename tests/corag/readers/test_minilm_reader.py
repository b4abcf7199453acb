"""`minilm-reader`: how contexts are read, on a small encoder; and the adapter that comes with the project."""

import numpy as np
import pytest

import corag
from corag.models.trained import AdapterConfig, save_adapter
from corag.readers.minilm_reader import BEST_TOKENS, FORM, NAME, MiniLMReader
from corag.readers.passages import closest_chunks, place_of
from corag.readers.span_reader import KINDS
from corag.testing import ReaderContract
from corag.text.tokens import encode, load_tokenizer, model_folder
from tests.corag.models.worlds import small_bert

pytestmark = pytest.mark.slow

SETTINGS = {"window_tokens": 64, "max_answer_tokens": 5, "slope": 1.0, "offset": 0.0, "kinds": list(KINDS)}
QUESTION = "Who mapped the river?"
LONG = "\n\n".join(
    f"Title {i}\nThe river number {i} was mapped by person {i} in the year {1800 + i}." for i in range(12)
)


@pytest.fixture(autouse=True)
def small_encoder(monkeypatch, tmp_path_factory, request):
    if "shipped" not in request.fixturenames:
        monkeypatch.setattr("corag.models.trained.load_bert", small_bert)
        monkeypatch.setenv("CORAG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def reader(tmp_path):
    """One whose adapter has a random head and update."""
    random = np.random.default_rng(0)
    tensors = {
        "head.weight": random.normal(size=(6, 32)).astype(np.float16),
        "head.bias": np.array([0, 0, 5, 0, 0, 0], dtype=np.float16),
        "encoder.encoder.layer.1.output.dense.weight.down": random.normal(size=(3, 64)).astype(np.float16),
        "encoder.encoder.layer.1.output.dense.weight.up": random.normal(size=(32, 3)).astype(np.float16) / 8,
    }
    save_adapter(tmp_path / "small", tensors, AdapterConfig(NAME, FORM, SETTINGS), "# Small\n")
    return MiniLMReader(adapter=tmp_path / "small", backend="torch")


def test_the_best_of_all_windows_wins(reader):
    spans = reader._reader
    tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
    [question] = encode(tokenizer, [QUESTION])
    room = SETTINGS["window_tokens"] - len(question) - 3
    chunks = LONG.split("\n\n")
    lengths = [len(one) for one in encode(tokenizer, chunks)]
    assert all(3 * length <= room < 4 * length for length in lengths)
    parts = ["\n\n".join(chunks[first : first + 3]) for first in range(0, len(chunks), 3)]
    (whole,) = spans.read([QUESTION], [LONG])
    alone = spans.read([QUESTION] * len(parts), parts)
    best = max(alone, key=lambda reading: reading.margin)
    assert whole.margin == pytest.approx(best.margin, abs=1e-4)
    part = parts[alone.index(best)]
    assert LONG[slice(*whole.span)] == part[slice(*best.span)]


class TestContract(ReaderContract):
    contexts = (*ReaderContract.contexts, LONG, LONG[:300])

    @pytest.fixture
    def reader(self, reader):
        return reader


@pytest.fixture(scope="module")
def shipped():
    return corag.reader("minilm-reader")


CONTEXT = (
    "Weimar\nWeimar is a city in Thuringia. Johann Wolfgang von Goethe lived there until his death in 1832.\n\n"
    "Jena\nJena lies on the Saale. Carl Zeiss opened his workshop there in 1846 and made microscopes.\n\n"
    "Erfurt\nErfurt is the capital of Thuringia. Its university was founded in 1379 and closed in 1816."
)


@pytest.mark.parametrize(
    ("question", "text", "chunk"),
    [
        ("Who opened a workshop in Jena?", "Carl Zeiss", 1),
        ("When did Goethe die?", "1832", 0),
        ("What is the capital of Thuringia?", "Erfurt", 2),
    ],
)
def test_the_shipped_adapter_reads(shipped, question, text, chunk):
    answer = shipped.answer(question, CONTEXT)
    assert answer.text == text
    assert answer.chunk == chunk
    assert answer.confidence > shipped.answer(question, "Bananas\nBananas are yellow and grow in Ecuador.").confidence


@pytest.mark.parametrize("method", ["top-k(k=20)", "naive(unit=sentence)"])
def test_of_a_long_selection_the_closest_passages_are_read(shipped, method):
    question = "Who opened a workshop in Jena?"
    things = ("church", "mill", "market", "bridge", "school", "harbour")
    villages = [" ".join(f"The {thing} of village {n} is {n} miles away." for thing in things) for n in range(17)]
    texts = [*(f"Village {number}\n{text}" for number, text in enumerate(villages)), *CONTEXT.split("\n\n")]
    chunks = [corag.Chunk(text, text, {"title": text.partition("\n")[0]}) for text in texts]
    selection = corag.select(question, chunks, budget_tokens=4096, method=method)
    kept = closest_chunks(question, selection, shipped._encoder, BEST_TOKENS)
    assert 0 < len(kept) < len(selection.chunks)
    assert any("Carl Zeiss" in selection.chunks[index].text for index in kept)
    answer = shipped.answer_from(question, selection)
    [span] = answer.spans
    assert answer.text == selection.text[slice(*span)] == "Carl Zeiss"
    chunk, within = place_of(span, selection)
    assert (chunk.metadata["title"], chunk.text[slice(*within)]) == ("Jena", "Carl Zeiss")
    assert selection.text.split("\n\n")[answer.chunk].startswith("Jena")


def test_a_short_selection_is_read_whole(shipped):
    question = "When did Goethe die?"
    selection = corag.select(question, CONTEXT.split("\n\n"), budget_tokens=512)
    assert shipped.answer_from(question, selection) == shipped.answer(question, selection.text)
