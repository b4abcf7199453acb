"""A made world of five kinds of questions, and a tiny cross-encoder for each: the kind says which one is best."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
import transformers

from corag.models.engine import quiet
from experiments.labels.config import LabelConfig
from experiments.labels.label import label
from tests.corag.models.worlds import save_bert
from tests.experiments.worlds import write_folder

START, MIDDLE, END = ("Vel", "Tor", "Quin", "Bra", "Osk", "Lim"), ("da", "mo", "ri", "nu"), ("la", "ven", "thos", "mar")
NAMES = [first + middle + last for first, middle, last in product(START, MIDDLE, END)]
random.Random(0).shuffle(NAMES)


@dataclass(frozen=True)
class Kind:
    """Questions of one kind, and what answers them."""

    training: tuple[str, ...]
    unseen: tuple[str, ...]
    passage: str
    answer: str


KINDS = {
    "rivers": Kind(
        ("How long is the river {}?", "Into which sea does the river {} flow?", "How deep is the river {}?",
         "Where is the source of the stream {}?", "Which lake does the river {} cross?",
         "On which bank of the {} is the harbour?", "Is there a waterfall on the river {}?",
         "Which valley does the stream {} drain?"),
        ("How wide is the river {} at its mouth?", "Which towns does the stream {} pass?"),
        "The water of {} runs {} kilometres from its spring to the sea.", "{} kilometres",
    ),
    "kings": Kind(
        ("When was king {} crowned?", "Whom did queen {} marry?", "How long did king {} rule?",
         "Which war did emperor {} win?", "Who was the father of king {}?",
         "Which treaty did queen {} sign?", "Where was emperor {} buried?",
         "Which throne did prince {} claim?"),
        ("Who was the heir of king {}?", "In which battle did queen {} lead her army?"),
        "The reign of {} began in the year {} with a crown of gold.", "year {}",
    ),
    "dishes": Kind(
        ("How do I cook {}?", "What is in the sauce of {}?", "How long does {} have to bake?",
         "Which spices go into {} soup?", "How much butter is in {} cake?", "Should {} be fried or boiled?",
         "At which heat is {} roasted?", "Which vegetables are in the {} salad?"),
        ("How much salt does a {} stew need?", "What should I serve with roasted {}?"),
        "The recipe for {} asks for {} grams of flour and an oven.", "{} grams",
    ),
    "programs": Kind(
        ("How do I install the library {}?", "Why does the function {} raise an exception?",
         "Which version of {} has the bug?", "How do I import {} in Python?",
         "Which arguments does the class {} take?", "How do I debug the script {}?",
         "Is the package {} open source?", "Which error does the server {} log?"),
        ("What does the method {} return?", "How do I compile the module {}?"),
        "The software {} prints code {} when the function returns.", "code {}",
    ),
}  # fmt: skip

SPLITS = {"train": NAMES[:2], "dev": NAMES[2:3], "test": NAMES[3:4]}
"""Names of rivers, kings, ...; in the test part some questions are put in other words, too."""


def questions(kind: str, split: str) -> list[str]:
    forms = KINDS[kind].training + (KINDS[kind].unseen if split == "test" else ())
    return [form.format(name) for name in SPLITS[split] for form in forms]


def passage(kind: str, name: str) -> tuple[str, str]:
    """Return the passage that answers all questions of a kind about a name, and the answer."""
    number = random.Random(f"{kind} {name}").randrange(100, 1000)
    return KINDS[kind].passage.format(name, number), KINDS[kind].answer.format(number)


def write_world(folder: Path, asked: tuple[str, ...]) -> Path:
    """Write a data folder with questions of some kinds, each with a passage of every kind about its name."""
    documents, queries = [], []
    for split, names in SPLITS.items():
        for kind, name in product(KINDS, names):
            documents.append({"id": f"{kind}-{name}", "title": "", "text": passage(kind, name)[0]})
        for kind in asked:
            for number, question in enumerate(questions(kind, split)):
                name = names[number * len(names) // len(questions(kind, split))]
                queries.append({
                    "id": f"{kind}-{split}-{number}", "question": question, "answers": [passage(kind, name)[1]],
                    "gold": [f"{kind}-{name}"], "candidates": [f"{other}-{name}" for other in KINDS], "split": split,
                })  # fmt: skip
    return write_folder(folder, documents, queries)


def label_world(folder: Path, asked: tuple[str, ...], rerankers: list[str]) -> Path:
    """Label the questions of some kinds with some rerankers, under a budget that one passage fills."""
    return label(
        LabelConfig(
            data=str(write_world(folder / "data", asked)),
            out=str(folder / "labels.parquet"),
            splits="train,dev,test",
            configurations=tuple(f"corag(unit=passage, reranker={name})" for name in rerankers),
            iterations="2,4",
            explorations="0.3",
            cost_weights="0.0,0.3",
            reader="extractive",
            budget=26,
            quiet=True,
        )
    )


def train_cross_encoder(kind: str, folder: Path, steps: int = 30) -> Path:
    """Save a tiny BERT that has learnt to find what answers the questions of one kind."""
    save_bert(folder, num_hidden_layers=1)
    with quiet():
        model = transformers.BertForSequenceClassification.from_pretrained(folder)
    for weights in model.parameters():
        weights.data.mul_(0.2 if weights.dim() > 1 else 1.0)  # a calmer start than that of a model nobody trains
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    draw = random.Random(kind)
    others = [other for other in KINDS if other != kind]
    for _ in range(steps):
        names = draw.choices(NAMES[4:], k=24)
        asked = [draw.choice(KINDS[kind].training).format(name) for name in names]
        wanted = [row % 3 == 0 for row in range(24)]
        offered = [
            passage(kind if good else draw.choice(others), name)[0] for good, name in zip(wanted, names, strict=True)
        ]
        batch = tokenizer(asked, offered, padding=True, return_tensors="pt")
        logits = model(**batch).logits[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(wanted).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with quiet():
        model.save_pretrained(folder)
    return folder
