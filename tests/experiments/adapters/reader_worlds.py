"""A small BERT with MiniLM's vocabulary, and a training of the reader that takes a second."""

import torch
import transformers

from corag.models.engine import quiet
from experiments.adapters.reader.config import ReaderSource, ReaderTest, ReaderTraining, RowSettings


def small_bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        initializer_range=0.2,
    )  # fmt: skip
    with quiet():
        return transformers.BertModel(config, add_pooling_layer=False).eval()


def small_training(data, out, **changes):
    settings = {
        "sources": (ReaderSource(data.name, held_out=0.4),),
        "tests": (ReaderTest(data.name),),
        "rows": RowSettings(min_tokens=40, max_tokens=64),
        "rank": 4,
        "epochs": 2.0,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "decay": 0.0,
        "average": 0.5,
        "batch_tokens": 192,
        "bf16": False,
        "backend": "torch",
        "threads": 1,
        "validate_every": 0,
        "logger": "none",
        "quiet": True,
    }
    return ReaderTraining(data=str(data.parent), out=str(out), **{**settings, **changes})
