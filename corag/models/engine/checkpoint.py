"""A transformers checkpoint: found, checked and loaded, with one clear error when it is not.

Only safetensors weights are read, never pickled ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from corag.errors import MissingExtraError, ModelError
from corag.models.engine.backends import load_replicas
from corag.models.engine.engine import Engine, Source, quiet
from corag.models.engine.pytorch import DTYPES
from corag.models.runtime import Backend, Place
from corag.optional import require

_SUFFIXES = (".jinja", ".json", ".model", ".py", ".safetensors", ".txt")

Task = Literal["pairs", "texts", "generation"]
"""One number per pair, one state per token, or the next token."""

_CLASSES: dict[Task, str] = {
    "pairs": "AutoModelForSequenceClassification",
    "texts": "AutoModel",
    "generation": "AutoModelForCausalLM",
}
_TRAINED: dict[Task, str] = {
    "pairs": "use a cross-encoder, whose head was trained, not its base model",
    "texts": "save the whole model anew",
    "generation": "use a model that was trained to generate text",
}
# RoBERTa and its kin number positions from the padding token's id + 1.
_OFFSET_TYPES = ("camembert", "roberta", "xlm-roberta", "xlm-roberta-xl")
HOW_TO_TRUST = "give --trust_remote_code, or trust_remote_code=True in Python"
# What a model's own code may raise that was written for another release of transformers.
_STALE_CODE = (AttributeError, ImportError, KeyError, NameError, TypeError)


class Checkpoint:
    """A folder with a model and its tokenizer.

    Args:
        model: Folder, or a name on the hub, which is then downloaded or taken from the hub's cache.
        task: What the model does; one for pairs has one label.
        trust_remote_code: Whether code that comes with the model may run.
        weights_revision: Revision on the hub to take where the main one has no safetensors.

    Attributes:
        name: The model, as given.
        tokenizer: Its transformers tokenizer.
        window: The most tokens of an input, special tokens included; None when neither tokenizer nor model says.
        runs_own_code: Whether code that comes with the model runs.

    Raises:
        MissingExtraError: transformers is not installed.
        ModelError: It is missing, damaged, or no such model.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        task: Task = "pairs",
        trust_remote_code: bool = False,
        weights_revision: str | None = None,
    ) -> None:
        self._transformers = require("transformers", "models")
        self.name = str(model)
        self._task = task
        self._settings = {"local_files_only": True, "trust_remote_code": trust_remote_code}
        self._has_own_code = self.runs_own_code = False
        self._code_folders: list[Path] = []
        with self._loading():
            self._folder = find_folder(model, weights_revision)
            written, _ = self._transformers.PreTrainedConfig.get_config_dict(self._folder, local_files_only=True)
            self._has_own_code = "auto_map" in written
            self.runs_own_code = self._has_own_code and trust_remote_code
            if self.runs_own_code:
                self._code_folders = [_download(name, (".py",)) for name in code_repositories(written)]
            # A configuration that says nothing of labels would be read as one of two.
            says_labels = task != "pairs" or "id2label" in written or "num_labels" in written
            labels = {} if says_labels else {"num_labels": 1}
            self._config = self._transformers.AutoConfig.from_pretrained(self._folder, **labels, **self._settings)
        if task == "pairs" and self._config.num_labels != 1:
            raise ModelError(
                f"the model {self.name!r} has {self._config.num_labels} labels; a reranker has one: use a "
                "cross-encoder that was trained to give one score"
            )
        self.tokenizer = self._load_tokenizer()
        self.window = self._window()

    @cached_property
    def sha256(self) -> str:
        """Hash of its configuration, tokenizer, code and weights: whatever values depend on."""
        parts = [_sha256(folder) for folder in (self._folder, *self._code_folders)]
        return parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        return tuple(name for name in names if name in self.tokenizer.model_input_names)

    @property
    def width(self) -> int:
        """Numbers of a token's state."""
        return int(self._config.hidden_size)

    def place(self, where: Place, backend: Backend) -> Place:
        """Return where it runs: own code through PyTorch, unless `backend` says otherwise."""
        # Converting records one run of the code, which holds for transformers' models; of other code nobody knows.
        return replace(where, backend="torch") if self.runs_own_code and backend == "auto" else where

    def engine(self, kind: str, where: Place) -> Engine:
        """Return what runs the model; `kind` begins the names of its cached files."""
        replicas = load_replicas(Source(kind, self.sha256, self.inputs, self.load), where, self.name)
        return Engine(replicas, self.tokenizer.pad_token_id or 0, where.batch_tokens)

    def load(self, precision: str = "fp32") -> Any:
        """Return the PyTorch module in evaluation mode, its weights in a precision."""
        with self._loading():
            module, report = getattr(self._transformers, _CLASSES[self._task]).from_pretrained(
                self._folder,
                config=self._config,
                use_safetensors=True,
                output_loading_info=True,
                dtype=getattr(require("torch", "models"), DTYPES[precision]),
                **self._settings,
            )
        # A pooler on top of the states is not asked.
        missing = [key for key in sorted(report["missing_keys"]) if self._task != "texts" or "pooler" not in key]
        if missing:
            raise ModelError(
                f"the model {self.name!r} lacks {len(missing)} of its weights, {missing[0]} for one; "
                f"{self._own_code_remedy() or _TRAINED[self._task]}"
            )
        return module.eval()

    def _load_tokenizer(self) -> Any:
        with self._loading():
            tokenizer = self._transformers.AutoTokenizer.from_pretrained(self._folder, **self._settings)
        # transformers makes up a tokenizer of a few special tokens where the files are missing.
        files = tokenizer.vocab_files_names.values()
        if not tokenizer.is_fast or not any((self._folder / file).is_file() for file in files):
            raise ModelError(
                f"the model {self.name!r} comes with no tokenizer that the tokenizers library can run; save one "
                f"beside it, as {' or '.join(files)}"
            )
        if len(tokenizer) > self._config.vocab_size:
            raise ModelError(
                f"the model {self.name!r} has a tokenizer of {len(tokenizer)} tokens, but embeddings for "
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
        """Turn what the libraries, and a model's own code, raise into one error."""
        damage = (OSError, RuntimeError, ValueError, require("safetensors", "models").SafetensorError)
        try:
            with quiet():
                yield
        except MissingExtraError:
            raise
        except (*damage, *_STALE_CODE) as error:
            if isinstance(error, _STALE_CODE) and not isinstance(error, damage) and not self.runs_own_code:
                raise
            raise ModelError(f"the model {self.name!r} cannot be loaded; {self._remedy(error)}: {error}") from error

    def _remedy(self, error: Exception) -> str:
        if isinstance(error, require("huggingface_hub.errors", "models").LocalEntryNotFoundError):
            return (
                "it is not on this machine, and the hub was not reached; check the name, or download it where there "
                f"is a network, with: hf download {self.name} --local-dir FOLDER, and give the folder"
            )
        if isinstance(error, _STALE_CODE):
            return (
                f"its own code does not run with transformers {self._transformers.__version__}; install what it asks "
                "for, or use a model whose architecture transformers has"
            )
        return self._own_code_remedy() or "give a local folder, or a name that exists on the hub with a network at hand"

    def _own_code_remedy(self) -> str | None:
        if self._has_own_code and not self.runs_own_code:
            return f"its own code has to run: if you trust it, {HOW_TO_TRUST}"
        return None


def find_folder(model: str | Path, weights_revision: str | None = None) -> Path:
    """Return the folder of a model given by folder or by name, downloaded where it is not there yet.

    Raises:
        OSError: Neither the folder nor the name is there.
        ValueError: It is no name.
    """
    if Path(model).is_dir():
        return Path(model)
    folder = _download(str(model), _SUFFIXES)
    if weights_revision is not None and not any(folder.glob("*.safetensors")):
        folder = _download(str(model), _SUFFIXES, weights_revision)
    return folder


def code_repositories(config: Mapping[str, Any]) -> list[str]:
    """Return the repositories that a `config.json` refers to by `repository--module.Class`."""
    values = config.get("auto_map", {}).values()
    # A tokenizer has two references, one of which may be null.
    references = [entry for value in values for entry in (value if isinstance(value, list) else [value]) if entry]
    return sorted({reference.partition("--")[0] for reference in references if "--" in reference})


def _download(name: str, suffixes: tuple[str, ...], revision: str | None = None) -> Path:
    hub = require("huggingface_hub", "models")
    patterns = [f"*{suffix}" for suffix in suffixes]
    return Path(hub.snapshot_download(name, allow_patterns=patterns, revision=revision))


def _sha256(folder: Path) -> str:
    """Return the hash of the names and contents of all files that values depend on."""
    total = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _SUFFIXES:
            with file.open("rb") as content:
                total.update(f"{file.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
