"""Token counters by the name of a model: a file, a folder, the Hugging Face hub, or OpenAI's models by tiktoken."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.errors import InputError, MissingExtraError, ModelError
from corag.optional import require
from corag.text.tokens import FILE, CallableCounter, TokenizerCounter, file_counter
from corag.types import TokenCounter

_OPENAI_MODEL = re.compile(r"(ft:)?(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-|davinci|babbage)", re.IGNORECASE)


def is_model(name: str) -> bool:
    """Return whether a name may be that of a model, a file or a folder; whether the model exists is not checked."""
    return (name != "" and Path(name).exists()) or "/" in name or _OPENAI_MODEL.match(name) is not None


def of_model(*, model: str | Path) -> TokenCounter:
    """Counts as a model does, on the hub or of OpenAI; so does its bare name.

    Without a `tokenizer.json` the tokenizer is loaded by transformers.

    Args:
        model: A `tokenizer.json`, a folder with a tokenizer, a name on the hub, whose tokenizer is downloaded or taken
            from the hub's cache, or one of OpenAI's (`gpt-4o`).

    Raises:
        InputError: There is no such file or model.
        MissingExtraError: A package that the tokenizer needs is not installed.
        ModelError: The tokenizer is broken, or not on this machine and cannot be downloaded.
    """
    name, path = str(model), Path(model)
    if name and path.is_file():
        return file_counter(path.resolve(), name)
    if name and path.is_dir():
        own = path / FILE
        return file_counter(own.resolve(), name) if own.is_file() else _by_transformers(name)
    if _OPENAI_MODEL.match(name) and "/" not in name:
        return by_tiktoken(model=name)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(
            f"tokenizer {name!r:.200} is neither a file, a folder nor a name on the hub, such as Qwen/Qwen3-8B; "
            "give the answering model's tokenizer.json"
        )
    # The cache comes first: without a network the hub would be waited for.
    file = in_cache(name) or _download(name)
    return _by_transformers(name) if file is None else file_counter(file, name)


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


def in_cache(name: str, file: str = FILE) -> Path | None:
    """Return a model's file in the cache of the hub; None if it is not there, or this is no name on the hub."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        path = try_to_load_from_cache(name, file)
    except errors.HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


def _download(name: str) -> Path | None:
    """Return a model's `tokenizer.json`, downloaded into the cache of the hub; None if it has none."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(name, FILE))
    except (OSError, ValueError, errors.HfHubHTTPError, errors.EntryNotFoundError) as error:
        no_file = isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError)
        # Without a network only what else of the model is here can tell whether it has a file.
        if no_file or in_cache(name, "tokenizer_config.json"):
            return None
        raise ModelError(
            f"the tokenizer of {name!r} is not on this machine and cannot be downloaded ({error}); check the name, log "
            f"in for a gated model (hf auth login), or give a folder: hf download {name} {FILE} --local-dir FOLDER"
        ) from error


def _by_transformers(name: str) -> TokenizerCounter | CallableCounter:
    from corag.models.runtime import current

    return _loaded(name, trust_remote_code=current().trust_remote_code)


@lru_cache(maxsize=8)
def _loaded(name: str, *, trust_remote_code: bool) -> TokenizerCounter | CallableCounter:
    transformers = require("transformers", "models")
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers raises whatever the files provoke
        raise ModelError(
            f"the tokenizer of {name!r} cannot be loaded: {error}; give a folder with its {FILE}"
        ) from error
    # transformers makes up a tokenizer of a few special tokens where the files are missing.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ModelError(f"{name!r} comes without a tokenizer; give a folder with its {FILE}")
    if tokenizer.is_fast:
        # A copy: the model's own may cut and pad.
        from tokenizers import Tokenizer

        return TokenizerCounter(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), name=name)
    return CallableCounter(lambda text: tokenizer.encode(text, add_special_tokens=False), name=name)


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
