"""A transformers checkpoint for one number per pair: found, checked and loaded, with one clear error when it is not.

Only safetensors weights are read, never pickled ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corag.engine.source import quiet
from corag.errors import ModelError
from corag.optional import require

_SUFFIXES = (".json", ".model", ".py", ".safetensors", ".txt")
# RoBERTa and its kin number positions from the padding token's id + 1.
_OFFSET_TYPES = ("camembert", "roberta", "xlm-roberta", "xlm-roberta-xl")


class Checkpoint:
    """A folder with a sequence-classification model of one label and its tokenizer.

    Args:
        model: Folder, or a name on the hub, which is then downloaded or taken from the hub's cache.
        trust_remote_code: Whether code that comes with the model may run.

    Attributes:
        sha256: Of its configuration, tokenizer, code and weights: whatever values depend on.
        tokenizer: Its transformers tokenizer.
        window: The most tokens of a pair, special tokens included; None when neither tokenizer nor model says.

    Raises:
        MissingExtraError: transformers is not installed.
        ModelError: It is missing, damaged, or no such model.
    """

    def __init__(self, model: str | Path, *, trust_remote_code: bool = False) -> None:
        self._transformers = require("transformers", "models")
        self._model = str(model)
        self._settings = {"local_files_only": True, "trust_remote_code": trust_remote_code}
        with self._loading():
            self._folder = _folder(model)
            self._config = self._transformers.AutoConfig.from_pretrained(self._folder, **self._settings)
        if self._config.num_labels != 1:
            raise ModelError(
                f"the model {self._model!r} has {self._config.num_labels} labels; a reranker has one: use a "
                "cross-encoder that was trained to give one score"
            )
        self.sha256 = _sha256(self._folder)
        self.tokenizer = self._load_tokenizer()
        self.window = self._window()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        return tuple(name for name in names if name in self.tokenizer.model_input_names)

    def load(self) -> Any:
        """Return the PyTorch module in fp32, in evaluation mode."""
        with self._loading():
            module, report = self._transformers.AutoModelForSequenceClassification.from_pretrained(
                self._folder,
                use_safetensors=True,
                output_loading_info=True,
                dtype=require("torch", "models").float32,
                **self._settings,
            )
        if missing := sorted(report["missing_keys"]):
            raise ModelError(
                f"the model {self._model!r} lacks {len(missing)} of its weights, {missing[0]} for one; use a "
                "cross-encoder, whose head was trained, not its base model"
            )
        return module.eval()

    def _load_tokenizer(self) -> Any:
        with self._loading():
            tokenizer = self._transformers.AutoTokenizer.from_pretrained(self._folder, **self._settings)
        # transformers makes up a tokenizer of a few special tokens where the files are missing.
        files = tokenizer.vocab_files_names.values()
        if not tokenizer.is_fast or not any((self._folder / file).is_file() for file in files):
            raise ModelError(
                f"the model {self._model!r} comes with no tokenizer that the tokenizers library can run; save one "
                f"beside it, as {' or '.join(files)}"
            )
        if len(tokenizer) > self._config.vocab_size:
            raise ModelError(
                f"the model {self._model!r} has a tokenizer of {len(tokenizer)} tokens, but embeddings for "
                f"{self._config.vocab_size}; save the tokenizer that it was trained with beside it"
            )
        return tokenizer

    def _window(self) -> int | None:
        positions = getattr(self._config, "max_position_embeddings", None)
        if positions and self._config.model_type in _OFFSET_TYPES:
            positions -= self._config.pad_token_id + 1
        # A tokenizer that knows no limit says 1e30.
        known = [limit for limit in (self.tokenizer.model_max_length, positions) if limit and limit < 1e9]
        return min(known, default=None)

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Turn what the libraries raise for missing and damaged models into one error."""
        try:
            with quiet():
                yield
        except (OSError, RuntimeError, ValueError, require("safetensors", "models").SafetensorError) as error:
            remedy = "give a local folder, or a name that exists on the hub with a network at hand"
            if "trust_remote_code" in str(error):
                remedy = "its own code has to run: if you trust it, pass trust_remote_code=True"
            raise ModelError(f"the model {self._model!r} cannot be loaded; {remedy}: {error}") from error


def _folder(model: str | Path) -> Path:
    """Return the folder of a model given by folder or by name.

    Raises:
        OSError: Neither the folder nor the name is there.
        ValueError: It is no name.
    """
    if Path(model).is_dir():
        return Path(model)
    hub = require("huggingface_hub", "models")
    return Path(hub.snapshot_download(str(model), allow_patterns=[f"*{suffix}" for suffix in _SUFFIXES]))


def _sha256(folder: Path) -> str:
    """Return the hash of the names and contents of all files that values depend on."""
    total = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _SUFFIXES:
            with file.open("rb") as content:
                total.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
