"""Models that users name: found, and loaded by sentence-transformers, with one clear error when not.

They are cross-encoders, embedders, and encoders such as BAAI/bge-m3, in PyTorch.

Weights are safetensors or, where a model has none, PyTorch's older files, of which only tensors are read: what else a
pickle may hold is refused (`torch.load(weights_only=True)`, the default of both libraries).
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from common.checks import check_path_like
from corag.errors import MissingExtraError, ModelError
from corag.models.encoders import BertEncoder, Pooling, tokenize_with
from corag.models.engine import DTYPES, Engine, on_device, quiet, torch_forward
from corag.models.runtime import Placement, Precision, resolve_device
from corag.optional import require
from corag.registry import Part

_SUFFIXES = (".jinja", ".json", ".model", ".py", ".safetensors", ".txt")
_OLDER_WEIGHTS = "pytorch_model*.bin"
_TOKENIZERS = ("tokenizer", "vocab", "spiece", "sentencepiece")
_PASSAGE_PROMPTS = ("document", "passage")
"""Names of prompts of passages, as in sentence-transformers."""
HOW_TO_TRUST = "give --trust_remote_code, or trust_remote_code=True in Python"
_OWN_CODE = f"its own code has to run: if you trust it, {HOW_TO_TRUST}"


OWN_CODE = (
    "jinaai/jina-reranker-v1-turbo-en",
    "jinaai/jina-reranker-v2-base-multilingual",
    "Alibaba-NLP/gte-multilingual-reranker-base",
)
"""Rerankers of the CORAG paper that run only with code from their repositories."""
BGE_M3 = "BAAI/bge-m3"
"""The query embedding of the CORAG paper."""

Kind = Literal["CrossEncoder", "SentenceTransformer"]


@dataclass(kw_only=True, eq=False)
class LoadedModel(Part):
    """A part around a model of sentence-transformers.

    Attributes:
        model: Its folder, or its name on the hub.
        precision: `fp32`, `bf16` or `fp16`; see `corag.models.runtime`, as for the next.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: sentence-transformers is not installed.
        ModelError: It is missing, damaged, or no such model, or does not fit the memory of its device.
    """

    kind: ClassVar[Kind]

    model: str | Path
    precision: Precision | None = None
    device: str | None = None
    trust_remote_code: bool | None = None

    def __post_init__(self) -> None:
        check_path(self.model)
        settings = {"precision": self.precision, "device": self.device, "trust_remote_code": self.trust_remote_code}
        role: Literal["reranker", "embedder"] = "reranker" if self.kind == "CrossEncoder" else "embedder"
        self.placement = resolve_device(role, backend="torch", **settings)
        self._model = load_model(self.kind, self.model, self.placement)


def load_model(kind: Kind, model: str | Path, placement: Placement) -> Any:
    """Return a model of sentence-transformers on its device; for errors see `LoadedModel`."""
    if str(model) in OWN_CODE and not placement.trust_remote_code:
        raise ModelError(
            f"the model {str(model)!r} runs only with its own code, which was written for transformers 4 and may not "
            f"run with 5; to try it, {HOW_TO_TRUST}"
        )
    # With WANDB_MODE=offline, transformers prints a notice when it is imported; the output of --json must not hold it.
    with redirect_stdout(io.StringIO()):
        library, torch = require("sentence_transformers", "models"), require("torch", "models")
    with loading(model, trusted=placement.trust_remote_code):
        folder = find_folder(model)
        settings: dict[str, Any] = {}
        if kind == "CrossEncoder":
            settings = _check_head(model, folder, trusted=placement.trust_remote_code)
        loaded = getattr(library, kind)(
            str(folder),
            device="cpu",
            trust_remote_code=placement.trust_remote_code,
            model_kwargs={"dtype": getattr(torch, DTYPES[placement.precision])},
            **settings,
        )
        if placement.trust_remote_code:
            # Code that was written for another release of transformers may fail as late as here.
            run, text = (loaded.predict, ("a", "a")) if kind == "CrossEncoder" else (loaded.encode, "a")
            run([text], show_progress_bar=False)
    if not loaded.tokenizer.is_fast:
        raise ModelError(f"the model {str(model)!r} comes with no fast tokenizer; save a tokenizer.json beside it")
    return on_device(loaded, placement.device, str(model))


def _check_head(model: str | Path, folder: Path, *, trusted: bool) -> dict[str, Any]:
    """Return settings of a cross-encoder; raise `ModelError` where its head would get random weights."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (architecture, *_) = config.get("architectures") or [""]
    is_known = hasattr(require("transformers", "models"), architecture)
    if not (is_known and architecture.endswith(("ForSequenceClassification", "ForCausalLM"))):
        if "auto_map" not in config:
            raise ModelError(
                f"the model {str(model)!r} is not a reranker ({architecture or 'no architecture'}); use a "
                "cross-encoder, whose head was trained, not its base model"
            )
        if not trusted:
            raise ModelError(f"the model {str(model)!r} cannot be loaded; {_OWN_CODE}")
    if (labels := len(config.get("id2label", [1]))) != 1:
        raise ModelError(f"the model {str(model)!r} has {labels} labels; use a cross-encoder that gives one score")
    # A configuration that says nothing of labels would be read as one of two.
    return {} if "id2label" in config else {"num_labels": 1}


def encoder_of(model: str, placement: Placement) -> BertEncoder:
    """Return the encoder of a model at a placement, which uses the model's own prompts; see `encoder_named`."""
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

    return BertEncoder(
        engine=Engine(model, placement, torch_forward(loaded[0].auto_model, placement.device)),
        tokenize=tokenize_with(tokenizer),
        dimension=int(loaded.get_embedding_dimension()),
        head=tuple(special.ids[:first]),
        tail=tuple(special.ids[last:]),
        query_prompt=prompt("query"),
        passage_prompt=prompt(*_PASSAGE_PROMPTS),
        pooling=_pooling(model, loaded),
        window=int(loaded.max_seq_length or 512),
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


@contextmanager
def loading(model: str | Path, *, trusted: bool) -> Iterator[None]:
    """Turn what the libraries, and a model's own code, raise into one error; silence their notices."""
    errors = require("huggingface_hub.errors", "models")
    damage = (OSError, RuntimeError, ValueError, require("safetensors", "models").SafetensorError)
    try:
        with quiet():
            yield
    except (MissingExtraError, ModelError):
        raise
    except Exception as error:
        reason = str(error)
        if isinstance(error, pickle.UnpicklingError):
            # PyTorch's own message says how to run the code in it.
            reason = "its weights are a pickle that holds more than tensors, which is not read"
            remedy = "give a model with model.safetensors"
        elif isinstance(error, errors.LocalEntryNotFoundError):
            remedy = (
                "it is not on this machine, and the hub was not reached; check the name, or download it where there "
                f"is a network, with: hf download {model} --local-dir FOLDER, and give the folder"
            )
        elif isinstance(error, damage):
            needs_code = "trust_remote_code" in reason and not trusted
            remedy = _OWN_CODE if needs_code else "give a local folder, or a name on the hub, which must be reachable"
        elif trusted:
            # Code that was written for another release of transformers may raise anything.
            release = require("transformers", "models").__version__
            remedy = f"its own code does not run with transformers {release}; install what it requires"
        else:
            raise
        raise ModelError(f"the model {str(model)!r} cannot be loaded; {remedy}: {reason}") from error


def check_path(model: str | Path) -> None:
    """Raise `ModelError` for a path at which no model can be, before any library is imported to load it.

    What is no path is an `InputError`.
    """
    check_path_like("model", model)
    path = Path(model)
    if path.is_dir() and not any((path / name).is_file() for name in ("config.json", "modules.json")):
        raise ModelError(f"the folder {str(model)!r} holds no model (no config.json); give the folder of one")
    if not path.is_dir() and (path.is_absolute() or path.exists() or str(model).startswith(".")):
        raise ModelError(f"there is no folder {str(model)!r}; give the folder of a model, or its name on the hub")


def find_folder(model: str | Path) -> Path:
    """Return the folder of a model given by folder or by name, downloaded where it is not there yet.

    Raises:
        OSError: Neither the folder nor the name is there.
        ValueError: It is no name.
    """
    if Path(model).is_dir():
        return Path(model)
    download = require("huggingface_hub", "models").snapshot_download
    folder = Path(download(str(model), allow_patterns=[f"*{suffix}" for suffix in _SUFFIXES]))
    if not any(folder.glob("*.safetensors")):
        folder = Path(download(str(model), allow_patterns=f"*{_OLDER_WEIGHTS}"))
    return folder


def is_whole_in_cache(model: str) -> bool:
    """Return whether the cache of the hub holds a model by this name with all of its weights; the hub is not asked."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(model, local_files_only=True))
        newer = any(folder.glob("*.safetensors"))
        index = folder / ("model.safetensors.index.json" if newer else "pytorch_model.bin.index.json")
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.exists() else set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    files = {file.name for file in folder.iterdir()}
    has_tokenizer = any(name.startswith(_TOKENIZERS) for name in files)
    return (newer or any(folder.glob(_OLDER_WEIGHTS))) and has_tokenizer and {"config.json", *shards} <= files
