"""Token counters by the name of a model: a file, a folder, the Hugging Face hub, or OpenAI's models by tiktoken."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.errors import InputError, MissingExtraError, ModelError
from corag.optional import require
from corag.text.tokens import FILE, CallableCounter, file_counter
from corag.types import TokenCounter

_OPENAI_MODEL = re.compile(r"(ft:)?(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-|davinci|babbage)", re.IGNORECASE)


def is_model(name: str) -> bool:
    """Return whether a name may be that of a model, a file or a folder; whether the model exists is not checked."""
    return (name != "" and Path(name).exists()) or "/" in name or _OPENAI_MODEL.match(name) is not None


def of_model(*, model: str | Path) -> TokenCounter:
    """Counts as a model does, on the hub or of OpenAI; so does its bare name.

    Args:
        model: A `tokenizer.json`, a folder with one, a name on the hub, whose file is downloaded or taken from the
            hub's cache, or one of OpenAI's (`gpt-4o`).

    Raises:
        InputError: There is no such file or model.
        MissingExtraError: A package that the tokenizer needs is not installed.
        ModelError: The tokenizer is broken, or not on this machine and cannot be downloaded.
    """
    name, path = str(model), Path(model)
    if name and path.exists():
        return file_counter((path / FILE if path.is_dir() else path).resolve(), name)
    if _OPENAI_MODEL.match(name) and "/" not in name:
        return by_tiktoken(model=name)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(
            f"tokenizer {name!r:.200} is neither a file, a folder nor a name on the hub, such as Qwen/Qwen3-8B; "
            "give the answering model's tokenizer.json"
        )
    # The cache comes first: without a network the hub would be waited for.
    return file_counter(in_cache(name) or _download(name), name)


def tokens_for_model(name: str) -> TokenCounter | None:
    """Return what counts the tokens of a model that a server runs; None if it is not on this machine."""
    served = name.rpartition("/")[2].replace(":", "-")
    try:
        if _OPENAI_MODEL.match(served):
            return by_tiktoken(model=served)
        if (own := Path(name) / FILE).is_file():  # servers call a model by its folder, too
            return file_counter(own, name)
        if (cached := in_cache(name)) is not None:
            return file_counter(cached, name)
    except (InputError, MissingExtraError, ModelError):
        pass
    return None


def by_tiktoken(*, model: str = "", encoding: str = "") -> CallableCounter:
    """Counts as a model of OpenAI does, without special tokens; needs `pip install 'corag[tiktoken]'`.

    Args:
        model: Name of the model.
        encoding: Name of an encoding of tiktoken, instead of a model.
    """
    if bool(model) == bool(encoding):
        raise InputError("expected a model or an encoding of tiktoken, such as tiktoken(model=gpt-4o)")
    vocabulary = _encoding((model or encoding).lower())
    return CallableCounter(vocabulary.encode_ordinary, name=f"tiktoken(encoding={vocabulary.name})")


def in_cache(name: str) -> Path | None:
    """Return a model's `tokenizer.json` in the cache of the hub; None if it is not there, or no name on the hub."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        path = try_to_load_from_cache(name, FILE)
    except errors.HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


def _download(name: str) -> Path:
    """Return a model's `tokenizer.json`, downloaded into the cache of the hub."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(name, FILE))
    except (OSError, ValueError, errors.HfHubHTTPError) as error:
        raise ModelError(
            f"the {FILE} of {name!r} is not on this machine and cannot be downloaded ({error}); check the name, log in "
            f"for a gated model (hf auth login), give a folder: hf download {name} {FILE} --local-dir FOLDER, or, if "
            "it has none, in Python a function from a text to its tokens"
        ) from error


@lru_cache(maxsize=4)
def _encoding(name: str) -> Any:
    tiktoken = require("tiktoken", "tiktoken")
    known = tiktoken.list_encoding_names()
    try:
        name = name if name in known else tiktoken.encoding_name_for_model(name)
    except KeyError as error:
        raise InputError(
            f"tiktoken {tiktoken.__version__} does not know {name!r}; update it (pip install -U tiktoken) or name an "
            f"encoding, as tiktoken(encoding=o200k_base): {', '.join(known)}"
        ) from error
    try:
        return tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:  # those of requests are OSErrors
        raise ModelError(
            f"the vocabulary of tiktoken's encoding {name!r} is not on this machine and cannot be downloaded "
            f"({type(error).__name__}); bring a folder with it and set TIKTOKEN_CACHE_DIR, or count with tokenizer "
            "estimate"
        ) from error
