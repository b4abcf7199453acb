"""The paper's agent on a made pool: each kind of questions is served by one reranker alone, and the labels are real."""

import random
from functools import partial

import numpy as np
import pytest

import corag
from corag.registry import RERANKERS
from experiments.agents.compare import named
from experiments.agents.train import TrainAgentConfig, train
from experiments.labels.config import LabelConfig
from experiments.labels.label import label
from experiments.labels.table import read_labels
from tests.experiments.worlds import write_folder
from tests.fakes import HashReranker

pytestmark = pytest.mark.slow

KINDS = {
    "rivers": (
        ("How long is the river {}?", "Into which sea does the river {} flow?", "How deep is the river {}?",
         "Where is the source of the stream {}?", "Which lake does the river {} cross?",
         "Which valley does the stream {} drain?", "How wide is the river {} at its mouth?"),
        "The water of {} runs {} kilometres from its spring to the sea.", "kilometres",
    ),
    "kings": (
        ("When was king {} crowned?", "Whom did queen {} marry?", "How long did king {} rule?",
         "Which war did emperor {} win?", "Who was the father of king {}?",
         "Which throne did prince {} claim?", "Who was the heir of king {}?"),
        "The reign of {} began with a crown of gold in {} years.", "years",
    ),
    "dishes": (
        ("How do I cook {}?", "What is in the sauce of {}?", "How long does {} have to bake?",
         "Which spices go into {} soup?", "How much butter is in {} cake?",
         "At which heat is {} roasted?", "How much salt does a {} stew need?"),
        "The recipe for {} in an oven asks for {} grams of flour.", "grams",
    ),
    "programs": (
        ("How do I install the library {}?", "Why does the function {} raise an exception?",
         "Which version of {} has the bug?", "How do I import {} in Python?",
         "What does the method {} return?", "Which error does the server {} log?",
         "Which exception does the function {} raise?"),
        "The software {} prints {} codes when the function returns.", "codes",
    ),
}  # fmt: skip
"""Questions, of which the last is asked in the test alone; the passage that answers them, and its unit."""
NAMES = {"train": ("Veldala", "Tormoven"), "dev": ("Quinrithos",), "test": ("Branumar",)}


def passage(kind, name):
    """Return the passage that answers all questions of a kind about a name, and the answer."""
    number = random.Random(f"{kind} {name}").randrange(100, 1000)
    return KINDS[kind][1].format(name, number), f"{number} {KINDS[kind][2]}"


class Expert(HashReranker):
    """Finds the passages of one kind, whatever is asked."""

    def __init__(self, kind):
        self.name, self.unit = kind, KINDS[kind][2]

    def score(self, query, texts):
        return np.array([float(self.unit in text) for text in texts])


@pytest.fixture(scope="module", autouse=True)
def rerankers():
    """Registers an expert for each kind."""
    for kind in KINDS:
        RERANKERS.register(kind, partial(Expert, kind))
    yield
    for kind in KINDS:
        del RERANKERS.parts[kind]


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Each question has a passage of every kind about its name, and the budget is for one."""
    folder = tmp_path_factory.mktemp("labels")
    pairs = [(kind, name) for names in NAMES.values() for name in names for kind in KINDS]
    documents = [{"id": f"{kind}-{name}", "title": "", "text": passage(kind, name)[0]} for kind, name in pairs]
    queries = [
        {"id": f"{kind}-{name}-{number}", "question": form.format(name), "answers": [passage(kind, name)[1]],
         "gold": [f"{kind}-{name}"], "candidates": [f"{other}-{name}" for other in KINDS], "split": split}
        for split, names in NAMES.items()
        for name in names
        for kind, (forms, *_) in KINDS.items()
        for number, form in enumerate(forms if split == "test" else forms[:-1])
    ]  # fmt: skip
    return label(
        LabelConfig(
            data=str(write_folder(folder / "data", documents, queries)), out=str(folder / "labels.parquet"),
            splits="train,dev,test", configurations=tuple(f"corag(unit=passage, reranker={kind})" for kind in KINDS),
            iterations="2,4", explorations="0.3", cost_weights="0.0,0.3", reader="extractive", budget=26, quiet=True,
        )
    )  # fmt: skip


def test_it_reaches_the_oracle_within_two_percent_and_is_searched_with(labels, tmp_path):
    report = train(
        TrainAgentConfig(
            labels=str(labels), out=str(tmp_path), recipe="paper", own_splits=True, quiet=True, logger="none",
            device="cpu",
        )
    )  # fmt: skip
    table = read_labels(str(labels))
    test = table.of(table.split == "test")
    values = test.measures["rougeL"]
    oracle = values.max(axis=1).mean()
    assert values[np.arange(len(test)), named(report.agent, test)].mean() >= 0.98 * oracle
    # The best single configuration serves one kind.
    assert values.mean(axis=0).max() < 0.4 * oracle
    selector = corag.selector("corag", agent=report.checkpoint, tokenizer="minilm")
    [name] = NAMES["test"]
    offered = [corag.Candidate(corag.Chunk(kind, passage(kind, name)[0]), 0.5) for kind in KINDS]
    for kind, (forms, *_) in KINDS.items():
        selection = selector.select(forms[0].format(name), offered, 26)
        assert selection.ids == (kind,) and f"reranker={kind}" in selection.trace.details["configuration"]
