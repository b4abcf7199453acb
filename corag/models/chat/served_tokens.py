"""Token counts by the tokenizer that a server has: Ollama hands out its vocabulary, vLLM and llama.cpp count.

A server that does neither is no error: the counter is then None, and another has to do.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from corag.errors import InputError, ReaderError
from corag.memory import LRU, megabytes
from corag.models.chat import loop
from corag.text.tokens import TokenizerCounter
from corag.text.tokens.gguf import tokenizer_of

_TIMEOUT_S = 10.0
_MAX_BYTES = 128 << 20
_PROBE = "two words"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def ollama_tokens(address: str, model: str) -> TokenizerCounter | None:
    """Return the counter of a model by the vocabulary that an Ollama server has of it.

    See https://github.com/ollama/ollama/blob/main/docs/api.md#show-model-information.

    Args:
        address: URL of the server.
        model: Name of the model.
    """
    told = _asked(f"{address}/api/show", {"model": model, "verbose": True})
    about = told.get("model_info") if isinstance(told, dict) else None
    try:
        tokenizer = tokenizer_of(about) if isinstance(about, dict) else None
    except Exception:  # noqa: BLE001  (fields that contradict each other; tokenizers raises nothing narrower)
        return None
    return None if tokenizer is None else TokenizerCounter(tokenizer, name=f"ollama's {model}")


def counting_server(base_url: str, model: str, api_key: str | None = None) -> ServerTokens | None:
    """Return the counter that asks a server of vLLM or llama.cpp; None where the server cannot count.

    Args:
        base_url: URL of its OpenAI-compatible interface.
        model: Name of the model.
        api_key: Key to the server.
    """
    counter = ServerTokens(base_url, model, api_key)
    try:
        return counter if counter.count([_PROBE])[0] > 0 else None
    except ReaderError:
        return None


class ServerTokens:
    """Counts by asking a server of vLLM or llama.cpp, once for each text.

    See https://docs.vllm.ai/en/latest/serving/openai_compatible_server/ (`/tokenize`) and
    https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
    """

    exact = True

    def __init__(self, base_url: str, model: str, api_key: str | None = None) -> None:
        parts = urlsplit(base_url)
        self._url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1") + "/tokenize").geturl()
        self._model, self._headers = model, {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._known: LRU[str, int] = LRU(megabytes(16), kind="token counts")
        self.name = f"{self._url} of {model}"

    def count(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text, without special tokens, `[len(texts)]`.

        Raises:
            InputError: A text is not valid Unicode.
            ReaderError: The server does not count.
        """
        return np.array(self._known.get_many(list(texts), self._count), dtype=np.int64)

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [self._count_one(text) if text else 0 for text in texts]

    def _count_one(self, text: str) -> int:
        # Each server has names of its own for text and special tokens, and passes over those of the other.
        said = _asked(
            self._url,
            {"model": self._model, "prompt": text, "content": text, "add_special_tokens": False, "add_special": False},
            self._headers,
        )
        tokens = said.get("tokens") if isinstance(said, dict) else None
        if not isinstance(tokens, list):
            raise ReaderError(
                f"{self._url} did not count the tokens of a text; look into the log of the server, or name the "
                "tokenizer of the model with --tokenizer"
            )
        return len(tokens)


def _asked(url: str, question: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Any:
    """Return the JSON that a server sends back; None where it sends an error, too much or nothing."""
    import httpx

    try:
        content = json.dumps(question, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text cannot be tokenised ({error}); texts must be strings of valid Unicode without lone surrogates"
        ) from error
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
    try:
        return loop.run(_sent(url, content, headers))
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError):
        return None


async def _sent(url: str, content: bytes, headers: Mapping[str, str]) -> Any:
    import httpx

    received = bytearray()
    # A deadline for the whole: a server that sends a byte now and then would never time out.
    async with (
        asyncio.timeout(_TIMEOUT_S),
        httpx.AsyncClient(timeout=_TIMEOUT_S) as client,
        client.stream("POST", url, content=content, headers=headers) as reply,
    ):
        if reply.status_code != httpx.codes.OK:
            return None
        async for chunk in reply.aiter_raw():
            received += chunk
            if len(received) > _MAX_BYTES:
                return None
    return json.loads(received)
