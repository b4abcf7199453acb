"""Token counters by the bare name of a model, a file or a folder: what people write behind `--tokenizer`."""

from __future__ import annotations

from pathlib import Path

from corag.errors import InputError, ModelError
from corag.text.tokens.families import at_hand, family
from corag.text.tokens.hub import huggingface
from corag.text.tokens.openai import Tiktoken, is_openai_model
from corag.types import TokenCounter


def is_model(name: str) -> bool:
    """Return whether a name may be that of a model, a file or a folder; whether the model exists is not asked."""
    return (name != "" and Path(name).exists()) or "/" in name or is_openai_model(name) or bool(family(name))


def of_model(*, model: str | Path) -> TokenCounter:
    """Counts as a model does, on the hub, of OpenAI or of a known family; so does its bare name.

    Args:
        model: A `tokenizer.json`, a folder with a tokenizer, a name on the hub, one of OpenAI's (`gpt-4o`), or one as
            Ollama gives them (`llama3.1:8b`), if a tokenizer of its family is on this machine.

    Raises:
        InputError: There is no such file or model.
        MissingExtraError: A package that the tokenizer needs is not installed.
        ModelError: The tokenizer is not on this machine and cannot be downloaded.
    """
    name = str(model)
    if not is_model(name):
        raise InputError(
            f"tokenizer {name!r:.200} is neither a file, a folder, a name on the hub such as Qwen/Qwen3-8B "
            "nor a model of a known family; give the answering model's tokenizer.json"
        )
    if Path(name).exists() or "/" in name:
        return huggingface(model=name)
    if is_openai_model(name) and not family(name):
        return Tiktoken(model=name)
    if (found := at_hand(name)) is not None:
        return found
    raise ModelError(
        f"no tokenizer of {name!r} is on this machine; name one on the hub, such as {family(name)[0]}, which is "
        "downloaded once, or give a tokenizer.json"
    )
