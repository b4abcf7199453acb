"""Chats with a causal language model in a local folder or on the hub, run in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from corag.errors import InputError, ModelError
from corag.models.chat.base import Chat, ChatReply, Messages
from corag.models.checkpoint import find_folder, folder_sha256, loading
from corag.models.engine import DTYPES, Rows, on_device, quiet, run_packed
from corag.models.runtime import Precision, record_use, resolve_device
from corag.optional import require
from corag.text.tokens import CallableCounter
from corag.types import TokenCounter


@dataclass(kw_only=True, eq=False)
class LocalChat(Chat):
    """A causal language model that runs in this process; its replies are greedy. What is None is as in `corag.runtime`.

    Control tokens in messages are broken up, so that the model reads them as text.

    Attributes:
        model: Folder, or name on the hub, of a causal language model.
        device: cpu, cuda, cuda:N, mps or auto.
        precision: fp32, bf16, fp16 or auto.
        trust_remote_code: Whether the model's own code may run.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: transformers or PyTorch is not installed.
        ModelError: The model is missing, damaged, or not a chat model.
    """

    device: str | None = None
    precision: Precision | None = None
    trust_remote_code: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = {name: getattr(self, name) for name in ("device", "precision", "trust_remote_code")}
        self._placement = resolve_device("reader", backend="torch", **settings)
        self._torch = require("torch", "models")
        self._transformers = require("transformers", "models")
        trusted = self._placement.trust_remote_code
        options = {"local_files_only": True, "trust_remote_code": trusted}
        with loading(self.model, trusted=trusted):
            self._folder = find_folder(self.model)
            self._tokenizer = self._transformers.AutoTokenizer.from_pretrained(self._folder, **options)
            module, report = self._transformers.AutoModelForCausalLM.from_pretrained(
                self._folder,
                output_loading_info=True,
                dtype=getattr(self._torch, DTYPES[self._placement.precision]),
                **options,
            )
        if report["missing_keys"]:
            raise ModelError(f"the model {self.model!r} lacks weights; use a model that was trained to generate text")
        if self._tokenizer.chat_template is None:
            raise ModelError(f"the model {self.model!r} has no chat template; name one that was trained to chat")
        module.eval()
        self._model = on_device(module, self._placement.device, str(self.model))
        self._one_at_a_time = threading.Lock()
        added = {*self._tokenizer.get_added_vocab(), *self._tokenizer.all_special_tokens}
        controls = sorted((token for token in added if len(token) > 1), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)) or r"(?!)")
        ends = module.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [self._tokenizer.eos_token_id if ends is None else ends]
        self._ends: list[int] = [end for end in ends if end is not None]
        self._padding = int(next(one for one in (self._tokenizer.pad_token_id, *self._ends, 0) if one is not None))
        # Greedy replies, without the sampling settings of the model.
        self._generation = self._transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=self.max_answer_tokens,
            eos_token_id=self._ends or None,
            pad_token_id=self._padding,
        )

    @property
    def name(self) -> str:
        """Kind and name of the model."""
        return f"transformers/{self.model}"

    @cached_property
    def identity(self) -> str:
        """What a reply depends on besides the messages."""
        return f"transformers {folder_sha256(self._folder)} {self._placement.values_depend_on} {self.max_answer_tokens}"

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts with the model's own tokenizer."""
        return CallableCounter(lambda text: self._ids(self._as_text(text)), name=str(self.model))

    @cached_property
    def context_window(self) -> int | None:
        """Maximum tokens of prompt and reply together; None if neither tokenizer nor model has a limit."""
        # A tokenizer that knows no limit says 1e30.
        limits = (self._tokenizer.model_max_length, getattr(self._model.config, "max_position_embeddings", None))
        return min((limit for limit in limits if limit and limit < 1e9), default=None)

    def count(self, messages: Messages) -> int:
        """Return the tokens of the whole prompt."""
        return len(self.encode(messages))

    def encode(self, messages: Messages) -> list[int]:
        """Return the token ids of the whole prompt; `InputError` for a text that is not valid Unicode."""
        from jinja2 import TemplateError

        chat = [{**message, "content": self._as_text(message["content"])} for message in messages]
        apply = partial(self._tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
        try:
            return self._ids(str(apply(chat)))
        except TemplateError:
            # Without a system role the instructions go before the question.
            first, *rest = chat
            if first["role"] != "system" or not rest:
                raise
            merged = {"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}
            return self._ids(str(apply([merged, *rest[1:]])))

    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[ChatReply]:
        """Return the greedy reply to each conversation, in batches of prompts of similar length.

        A batch changes values by rounding, so that of two tokens that are all but equally probable, either may follow.
        """
        prompts = [self._checked(messages) for messages in conversations]
        lengths = [len(prompt) + self.max_answer_tokens for prompt in prompts]

        def write(rows: Rows) -> list[ChatReply]:
            return self._write([prompts[row] for row in rows])

        replies: dict[int, ChatReply] = {}
        with self._one_at_a_time:
            for rows, written in run_packed(write, lengths, self._placement.batch_tokens):
                replies |= zip(rows.tolist(), written, strict=True)
        return [replies[row] for row in range(len(prompts))]

    def stream_reply(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, ChatReply]:
        """Yield the pieces of the greedy reply as they are written, and return the whole; see `Chat`."""
        return self._streamed(self._checked(messages))

    def _streamed(self, prompt: list[int]) -> Generator[str, None, ChatReply]:
        streamer = self._transformers.TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        stopped = threading.Event()

        def stop(ids: Any, scores: Any) -> Any:
            return self._torch.full((len(ids),), stopped.is_set(), device=ids.device)

        def write() -> list[ChatReply]:
            try:
                with self._one_at_a_time:
                    return self._write([prompt], streamer=streamer, stopping_criteria=[stop])
            except BaseException:
                streamer.end()
                raise

        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write)
            try:
                yield from filter(None, streamer)
            finally:
                stopped.set()
            return written.result()[0]

    def _as_text(self, text: str) -> str:
        """Return a text whose control tokens are broken up."""
        return self._controls.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def _ids(self, text: str) -> list[int]:
        try:
            with quiet():
                return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        except (TypeError, UnicodeEncodeError) as error:
            raise InputError(
                f"a text cannot be tokenised ({error}); decode its source with errors='replace'"
            ) from error

    def _checked(self, messages: Messages) -> list[int]:
        prompt = self.encode(messages)
        self.check_window(len(prompt))
        return prompt

    def _write(self, prompts: Sequence[list[int]], **settings: Any) -> list[ChatReply]:
        """Return the greedy continuation of each prompt of a batch; padding precedes a prompt."""
        torch = self._torch
        longest, device = max(map(len, prompts)), self._placement.device
        ids = torch.tensor([[self._padding] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        steps: list[Any] = []

        def keep_scores(ids: Any, logits: Any) -> Any:
            # The log-probability of each most probable token, `[batch]`: all logits would fill the memory.
            steps.append(logits.float().log_softmax(dim=-1).amax(dim=-1))
            return logits

        record_use(str(self.model), self._placement)
        with quiet(), torch.inference_mode():
            written = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=self._generation,
                logits_processor=[keep_scores],
                **settings,
            )
        rows = written[:, longest:].tolist()
        scores = torch.stack(steps, dim=1).cpu().tolist() if steps else [[] for _ in prompts]
        return [self._reply(row, own, len(prompt)) for row, own, prompt in zip(rows, scores, prompts, strict=True)]

    def _reply(self, row: list[int], scores: list[float], prompt_tokens: int) -> ChatReply:
        length = next((position for position, token in enumerate(row) if token in self._ends), len(row))
        text = self._tokenizer.decode(row[:length], skip_special_tokens=True)
        cut = length == len(row) >= self.max_answer_tokens
        return ChatReply(text, tuple(scores[:length]), cut, prompt_tokens, length)
