"""Encoders by the folder or the hub name of a model of sentence-transformers, such as BAAI/bge-m3, in PyTorch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from corag.errors import ModelError
from corag.models.checkpoint import check_path, load_model
from corag.models.encoders import BertEncoder, Pooling, tokenize_with
from corag.models.engine import Engine, torch_forward
from corag.models.runtime import Placement

PASSAGE_PROMPTS = ("document", "passage")
"""Names of prompts of passages, as in sentence-transformers."""


@lru_cache(maxsize=4)
def named_at(model: str, placement: Placement) -> BertEncoder:
    """Return the encoder of a model at a placement; each is loaded once per process.

    Its own prompts for questions and passages are used, where its configuration has some.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        ModelError: The model is missing or damaged, or its vectors are more than the mean or the first of its states.
    """
    check_path(model)
    loaded = load_model("SentenceTransformer", model, placement)
    tokenizer = loaded.tokenizer.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    special = tokenizer.encode("a", add_special_tokens=True)
    first = special.special_tokens_mask.index(0)
    last = len(special.ids) - special.special_tokens_mask[::-1].index(0)

    def prompt(*names: str) -> tuple[int, ...]:
        text = next((loaded.prompts[name] for name in names if loaded.prompts.get(name)), "")
        return tuple(tokenizer.encode(text.rstrip(), add_special_tokens=False).ids)

    window = int(loaded.max_seq_length or 512)
    return BertEncoder(
        model_name=model,
        engine=Engine(
            torch_forward(loaded[0].auto_model, placement.device), placement.batch_tokens, (model, placement)
        ),
        placement=placement,
        tokenize=tokenize_with(tokenizer),
        dimension=int(loaded.get_embedding_dimension()),
        head=tuple(special.ids[:first]),
        tail=tuple(special.ids[last:]),
        query_prompt=prompt("query"),
        passage_prompt=prompt(*PASSAGE_PROMPTS),
        pooling=_pooling(model, loaded),
        window=window,
    )


def _pooling(model: str, loaded: Any) -> Pooling:
    kinds = [type(module).__name__ for module in loaded]
    mode = getattr(loaded[1], "pooling_mode", None) if len(loaded) > 1 else None
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]) or mode not in ("mean", "cls"):
        raise ModelError(
            f"the encoder {model!r} makes its vectors by {', '.join(kinds)} ({mode}); an encoder's are the mean or the "
            "first of its states: give another encoder, or use the model as an embedder"
        )
    return "mean" if mode == "mean" else "cls"
