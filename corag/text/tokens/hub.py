"""Token counts by the tokenizer of a model on the Hugging Face hub, or in a folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.errors import InputError, ModelError
from corag.optional import require
from corag.text.tokens.files import FILE, TokenizerCounter, file_counter
from corag.text.tokens.functions import CallableCounter


def huggingface(*, model: str | Path) -> TokenizerCounter | CallableCounter:
    """Counts with the tokenizer of a model on the Hugging Face hub or in a folder.

    A `tokenizer.json` needs nothing but the library tokenizers; the tokenizer of a model without one is loaded by
    transformers.

    Args:
        model: A `tokenizer.json`, a folder, or a name on the hub, whose tokenizer is downloaded or taken from the hub's
            cache.

    Raises:
        InputError: There is no such file or folder, and it is no name on the hub.
        MissingExtraError: There is no `tokenizer.json`, and transformers is not installed.
        ModelError: The tokenizer is missing, broken, or cannot be downloaded.
    """
    name, path = str(model), Path(model)
    if name and path.is_file():
        return file_counter(path.resolve(), name)
    if name and path.is_dir():
        own = path / FILE
        return file_counter(own.resolve(), name) if own.is_file() else _by_transformers(name)
    if not is_hub_name(name):
        raise InputError(
            f"tokenizer {name!r:.200} is neither a file, a folder nor a name on the hub, such as Qwen/Qwen3-8B"
        )
    # What is in the cache is taken without asking the hub, which would wait where there is no network.
    file = in_cache(name) or _download(name)
    return _by_transformers(name) if file is None else file_counter(file, name)


def is_hub_name(name: str) -> bool:
    """Return whether a text can be the name of a model on the hub: an owner, a slash and a name."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


def in_cache(name: str) -> Path | None:
    """Return a model's `tokenizer.json` in the cache of the hub, where it is there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, FILE)
    return Path(found) if isinstance(found, str) else None


def _download(name: str) -> Path | None:
    """Return a model's `tokenizer.json` in the cache of the hub, downloaded where needed; None if it has none."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(name, FILE))
    except errors.LocalEntryNotFoundError as error:
        # Only what else of the model is here can tell whether it has one.
        if is_cached(name):
            return None
        raise ModelError(
            f"the tokenizer of {name!r} is not on this machine, and the hub was not reached; where there is a network, "
            f"run: hf download {name} {FILE} --local-dir FOLDER, and give the folder; or count with tokenizer estimate"
        ) from error
    except errors.EntryNotFoundError:
        return None
    except errors.GatedRepoError as error:
        raise ModelError(
            f"the model {name!r} is gated: accept its licence on https://huggingface.co/{name} and log in with "
            "`hf auth login`; or give the folder of a copy"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"the hub has no model {name!r} that you may see; check the name") from error
    except (OSError, errors.HfHubHTTPError) as error:
        raise ModelError(f"the tokenizer of {name!r} cannot be downloaded: {error}") from error


def is_cached(name: str, file: str = "tokenizer_config.json") -> bool:
    """Return whether the hub's cache on this machine holds a file of a model; the hub is not asked."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, file), str)
    except errors.HFValidationError:
        return False


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
