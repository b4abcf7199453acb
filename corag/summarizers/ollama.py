"""`ollama`: a model of an Ollama server writes the summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import get_args

from corag.errors import InputError, SummarizerError
from corag.models.ollama_chat import OllamaChat, OllamaError
from corag.summarizers.prompts import PROMPTS, Task, says_nothing
from corag.text.tokens import ESTIMATE, token_counter
from corag.types import SummaryRequest, TokenCounter

# English has about three words to four tokens; models count badly, so they are asked for fewer.
_WORDS_PER_TOKEN = 0.6
# Tokens of the window that the prompt takes besides the texts.
_PROMPT_TOKENS = 500


class OllamaSummarizer:
    """Asks a model of an Ollama server; needs `pip install 'corag[ollama]'`. Threads may share one summarizer.

    Args:
        model: Name of a model that the server has (`ollama list`).
        task: What to look for; see `corag.summarizers.prompts`. A request without a query is always a `summary`.
        host: Address of the server; None means the environment variable OLLAMA_HOST, else this machine.
        max_concurrent: Requests at the same time; more than the server takes (OLLAMA_NUM_PARALLEL) wait there.
        num_ctx: Tokens of the model's context window. A server cuts a longer prompt without a word, so texts beyond
            it are summarized in parts.
        tokens: Counts tokens; an estimate on the expensive side by default.
        timeout_s: Longest silence of the server, in seconds, before a try is given up.
        retries: Further tries after the first.
        backoff_s: Seconds before the second try; doubles with every further one.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the sampling.
        sleep: Waits the given seconds between two tries.

    Raises:
        InputError: A setting is out of its range.
        MissingExtraError: The package `ollama` is not installed.
    """

    def __init__(
        self,
        *,
        model: str = "llama3.1:8b",
        task: Task = "question",
        host: str | None = None,
        max_concurrent: int = 4,
        num_ctx: int = 8192,
        tokens: TokenCounter | None = None,
        timeout_s: float = 120.0,
        retries: int = 3,
        backoff_s: float = 0.5,
        temperature: float = 0.0,
        seed: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if task not in get_args(Task):
            raise InputError(f"task is {task!r}; it must be one of {', '.join(get_args(Task))}")
        if max_concurrent < 1:
            raise InputError(f"max_concurrent must be at least 1, got {max_concurrent!r}; 1 to 8 are usual")
        if num_ctx < 2 * _PROMPT_TOKENS:
            raise InputError(f"num_ctx must be at least {2 * _PROMPT_TOKENS}, got {num_ctx!r}; 4096 or 8192 are usual")
        self._chat = OllamaChat(
            model=model,
            host=host,
            timeout_s=timeout_s,
            retries=retries,
            backoff_s=backoff_s,
            temperature=temperature,
            seed=seed,
            num_ctx=num_ctx,
            sleep=sleep,
        )
        self.name = f"ollama/{model}"
        self.tokens: TokenCounter = tokens or token_counter(ESTIMATE)
        # A quarter of the window is left for the reply, which the model counts in its own tokens.
        self.window_tokens: int | None = (num_ctx - _PROMPT_TOKENS) * 3 // 4
        self.max_concurrent = max_concurrent
        self._task: Task = task
        settings = [model, self._chat.options, self.tokens.name]
        prompts = [PROMPTS[name] for name in (task, "summary")]
        self.identity = json.dumps(
            ["ollama", settings, [[prompt.system, prompt.user, prompt.example] for prompt in prompts]]
        )

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's reply, stripped; empty when it finds nothing that matters.

        Raises:
            SummarizerError: No try brought a whole reply.
            InputError: A text is not valid Unicode.
        """
        prompt = PROMPTS[self._task if request.query else "summary"]
        words = max(1, int(request.max_tokens * _WORDS_PER_TOKEN))
        try:
            reply = self._chat.ask(prompt.messages(request.texts, request.query, words)).strip()
        except OllamaError as error:
            raise SummarizerError(str(error)) from error
        return "" if says_nothing(reply) else reply
