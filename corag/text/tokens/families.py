"""The tokenizer of a model that a server runs, found by the model's name where a copy is on this machine.

Servers name models in their own ways: `llama3.1:8b`, `Qwen/Qwen2.5-7B-Instruct-AWQ`, `gpt-4o`. Models of one family
share a vocabulary, so any of its tokenizers counts for all.
"""

from __future__ import annotations

import importlib.util
import re
from contextlib import suppress
from pathlib import Path

from corag.errors import ModelError
from corag.optional import warn_once
from corag.text.tokens import openai
from corag.text.tokens.files import file_counter
from corag.text.tokens.functions import utf8_bytes
from corag.text.tokens.hub import in_cache, is_hub_name
from corag.types import TokenCounter

FAMILIES: dict[str, tuple[str, ...]] = {
    r"llama-?3(\.[123])?(?![\d.])": (
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct",
        "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.3-70B-Instruct",
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "unsloth/Llama-3.2-1B-Instruct",
        "unsloth/Meta-Llama-3.1-8B-Instruct",
        "NousResearch/Meta-Llama-3-8B-Instruct",
    ),
    r"qwen-?(2(\.5)?|3)(?![\d.])": (
        "Qwen/Qwen2.5-7B-Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
        "Qwen/Qwen2.5-1.5B-Instruct",
        "Qwen/Qwen2.5-3B-Instruct",
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-4B",
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen2-7B-Instruct",
    ),
    r"mi[sx]tral(:|$|-7b|-8x|:8x)": (
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
    ),
    r"mistral-nemo": ("mistralai/Mistral-Nemo-Instruct-2407",),
    r"gemma-?3(?!n)": (
        "google/gemma-3-4b-it",
        "google/gemma-3-1b-it",
        "google/gemma-3-12b-it",
        "google/gemma-3-27b-it",
    ),
    r"gemma(-?2(?!b)|:|$|-[27]b)": ("google/gemma-2-2b-it", "google/gemma-2-9b-it", "google/gemma-2-27b-it"),
    r"phi-?4(?!-m)": ("microsoft/phi-4",),
    r"phi-?4-mini": ("microsoft/Phi-4-mini-instruct",),
    r"phi-?3(\.5)?(?!.small)": ("microsoft/Phi-3.5-mini-instruct", "microsoft/Phi-3-mini-4k-instruct"),
    r"smollm2": (
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    ),
    r"smollm3": ("HuggingFaceTB/SmolLM3-3B",),
    r"gpt-oss": ("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
}
"""What the name of a family's models begins with, behind the owner -> models on the hub that have its tokenizer."""


def tokens_for_model(name: str) -> TokenCounter:
    """Return what counts the tokens of a model that a server runs.

    It is the model's own tokenizer, or that of its family, where one is on this machine: in the cache of the Hugging
    Face hub, or, for OpenAI's models, in tiktoken's. Nothing is downloaded. Otherwise it is an upper bound, one token
    for each UTF-8 byte, with a warning: a budget that is kept under it is kept under every tokenizer, but English text
    has four to five bytes a token, so that much of the budget stays empty.
    """
    return at_hand(name) or upper_bound(name)


def upper_bound(name: str) -> TokenCounter:
    """Return the counter of UTF-8 bytes, with a warning that it stands in for a model's tokenizer."""
    warn_once(
        f"the tokenizer of model {name!r} is not at hand, so each UTF-8 byte counts as a token, four to five times as "
        "many as English text has; name it, such as --tokenizer meta-llama/Llama-3.1-8B-Instruct, a tokenizer.json or "
        "gpt-4o, or take --tokenizer estimate, which is above the tokens of prose but can be below those of other text"
    )
    return utf8_bytes()


def at_hand(name: str) -> TokenCounter | None:
    """Return the counter of a model or of its family without a download; None where no tokenizer is at hand."""
    if (counter := _of_openai(_bare(name))) is not None:
        return counter
    if (own := Path(name) / "tokenizer.json").is_file():  # servers call a model by its folder, too
        return file_counter(own, name)
    for repository in (name, *family(name)):
        if is_hub_name(repository) and (file := in_cache(repository)) is not None:
            return file_counter(file, repository)
    return None


def family(name: str) -> tuple[str, ...]:
    """Return models on the hub that share the tokenizer of a model; none for a model of no known family."""
    bare = _bare(name).removeprefix("meta-")
    return next((models for begin, models in FAMILIES.items() if re.match(begin, bare)), ())


def _bare(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _of_openai(name: str) -> TokenCounter | None:
    if not openai.is_openai_model(name) or importlib.util.find_spec("tiktoken") is None:
        return None
    encoding = openai.encoding_name(name.replace(":", "-"))
    if encoding is None or not openai.is_at_hand(encoding):
        return None
    with suppress(ModelError):  # of a damaged file
        return openai.Tiktoken(encoding=encoding)
    return None
