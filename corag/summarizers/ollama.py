"""`ollama`: a model of an Ollama server writes the summary."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from corag.checks import check_choice, check_count
from corag.errors import SummarizerError
from corag.models.ollama_chat import OllamaChat, OllamaError, OllamaSettings
from corag.naming import Part
from corag.registry import tokens as make_tokens
from corag.summarizers.prompts import PROMPTS, Task, says_nothing
from corag.types import SummaryRequest, TokenCounter

# English has about three words to four tokens; models count badly, so they are asked for fewer.
_WORDS_PER_TOKEN = 0.6
# Tokens of the window that the prompt takes besides the texts.
_PROMPT_TOKENS = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class OllamaSummarizer(Part, OllamaSettings):
    """Asks a model of an Ollama server; needs `pip install 'corag[ollama]'`. Threads may share one summarizer.

    For the settings of model and server, see `corag.models.ollama_chat.OllamaSettings`.

    Attributes:
        num_ctx: Tokens of the model's context window. Texts beyond it are summarized in parts.
        task: What to look for; see `corag.summarizers.prompts`. A request without a query is always a `summary`.
        max_concurrent: Requests at the same time; more than the server takes (OLLAMA_NUM_PARALLEL) wait there.
        tokens: Counts tokens; by default an estimate on the expensive side.

    Raises:
        InputError: A setting is out of its range.
        MissingExtraError: The package `ollama` is not installed.
    """

    num_ctx: int = 8192
    task: Task = "question"
    max_concurrent: int = 4
    tokens: TokenCounter = field(default_factory=lambda: make_tokens("estimate"))
    _chat: OllamaChat = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("task", self.task, Task)
        check_count("max_concurrent", self.max_concurrent, "1 to 8 are usual")
        check_count("num_ctx", self.num_ctx, "4096 or 8192 are usual", least=2 * _PROMPT_TOKENS)
        object.__setattr__(self, "_chat", OllamaChat(self))

    @property
    def name(self) -> str:
        """`ollama/` and the model."""
        return f"ollama/{self.model}"

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of texts in one request: a quarter of the window is left for the reply."""
        return (self.num_ctx - _PROMPT_TOKENS) * 3 // 4

    @property
    def identity(self) -> str:
        """Everything that a summary depends on besides the request."""
        prompts = [PROMPTS[name] for name in (self.task, "summary")]
        asked = [[prompt.system, prompt.user, prompt.example] for prompt in prompts]
        return json.dumps(["ollama", [self.model, self.options, self.tokens.name], asked])

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's reply, stripped; empty when it finds nothing that matters.

        Raises:
            SummarizerError: No try brought a whole reply.
            InputError: A text is not valid Unicode.
        """
        prompt = PROMPTS[self.task if request.query else "summary"]
        words = max(1, int(request.max_tokens * _WORDS_PER_TOKEN))
        try:
            reply = self._chat.ask(prompt.messages(request.texts, request.query, words)).text.strip()
        except OllamaError as error:
            raise SummarizerError(str(error)) from error
        return "" if says_nothing(reply) else reply
