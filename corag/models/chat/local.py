"""Chats with a causal language model in a local folder or on the hub, run in this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from corag.errors import InputError, ModelError
from corag.models.chat.base import Chat, ChatReply, ChatSettings, Messages
from corag.models.checkpoint import find_folder, folder_sha256, loading
from corag.models.engine import DTYPES, free_memory, is_out_of_memory, on_device, quiet
from corag.models.ran import note, ran
from corag.models.runtime import Precision, place
from corag.optional import require
from corag.text.tokens import CallableCounter
from corag.types import TokenCounter


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalSettings(ChatSettings):
    """Which model to run, and where. What is None is as `corag.runtime` says.

    Attributes:
        model: Folder, or name on the hub, of a causal language model with safetensors weights.
        device: cpu, cuda, cuda:N, mps or auto.
        precision: fp32, bf16, fp16 or auto.
        batch_tokens: Maximum tokens of a batch, replies and padding included.
        trust_remote_code: Whether the model's own code may run.
    """

    device: str | None = None
    precision: Precision | None = None
    batch_tokens: int | None = None
    trust_remote_code: bool | None = None

    def connect(self) -> LocalChat:
        """Load the model."""
        return LocalChat(self)


class LocalChat(Chat):
    """A causal language model to chat with; its replies are greedy.

    Control tokens in messages are broken up, so that the model reads them as text.

    Args:
        settings: Model, device, and the like.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: transformers or PyTorch is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(self, settings: LocalSettings) -> None:
        self._place = place(
            "reader",
            backend="torch",
            device=settings.device,
            precision=settings.precision,
            batch_tokens=settings.batch_tokens,
            trust_remote_code=settings.trust_remote_code,
        )
        self._torch = require("torch", "models")
        self._transformers = require("transformers", "models")
        trusted = self._place.trust_remote_code
        options = {"local_files_only": True, "trust_remote_code": trusted}
        with loading(settings.model, trusted=trusted):
            self._folder = find_folder(settings.model)
            self._tokenizer = self._transformers.AutoTokenizer.from_pretrained(self._folder, **options)
            module, report = self._transformers.AutoModelForCausalLM.from_pretrained(
                self._folder,
                use_safetensors=True,
                output_loading_info=True,
                dtype=getattr(self._torch, DTYPES[self._place.precision]),
                **options,
            )
        if report["missing_keys"]:
            raise ModelError(
                f"the model {settings.model!r} lacks weights; use a model that was trained to generate text"
            )
        if self._tokenizer.chat_template is None:
            raise ModelError(f"the model {settings.model!r} has no chat template; name one that was trained to chat")
        module.eval()
        # A tokenizer that knows no limit says 1e30.
        limits = (self._tokenizer.model_max_length, getattr(module.config, "max_position_embeddings", None))
        self._window = min((limit for limit in limits if limit and limit < 1e9), default=None)
        self.name = f"transformers/{settings.model}"
        self.max_answer_tokens = settings.max_answer_tokens
        self._device = self._place.device
        self._model = on_device(module, self._device, str(settings.model))
        self._ran = ran(str(settings.model), self._place)
        self._one_at_a_time = threading.Lock()
        added = {*self._tokenizer.get_added_vocab(), *self._tokenizer.all_special_tokens}
        controls = sorted((token for token in added if len(token) > 1), key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, controls)) or r"(?!)")

    @cached_property
    def identity(self) -> str:
        """What a reply depends on besides the messages."""
        return f"transformers {folder_sha256(self._folder)} {self._place.values_depend_on} {self.max_answer_tokens}"

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts with the model's own tokenizer."""
        return CallableCounter(lambda text: self._ids(self._as_text(text)), name=self.name.partition("/")[2])

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and reply together; None if neither tokenizer nor model has a limit."""
        return self._window

    def count(self, messages: Messages) -> int:
        """Return the tokens of the whole prompt."""
        return len(self.encode(messages))

    def encode(self, messages: Messages) -> list[int]:
        """Return the tokens of the whole prompt; `InputError` for a text that is not valid Unicode."""
        shown = [{**message, "content": self._as_text(message["content"])} for message in messages]
        return self._ids(self._chat_text(shown))

    def ask_many(self, conversations: Sequence[Messages], *, scored: bool = False) -> list[ChatReply]:
        """Return the greedy reply to each conversation, in batches of prompts of similar length.

        A batch changes values by rounding, so that where two tokens are all but equally probable, either may follow.

        Raises:
            InputError: A prompt leaves no room for a reply, or is not valid Unicode.
        """
        prompts = [self._checked(messages) for messages in conversations]
        replies: dict[int, ChatReply] = {}
        with self._one_at_a_time:
            for batch in self._batches(prompts):
                replies |= zip(batch, self._write_all([prompts[place] for place in batch]), strict=True)
        return [replies[place] for place in range(len(prompts))]

    def stream(self, messages: Messages, *, scored: bool = False) -> Generator[str, None, ChatReply]:
        """Yield the pieces of the greedy reply as they are written, and return the whole; closing it stops the model.

        Raises:
            InputError: As for `ask_many`.
        """
        return self._streamed(self._checked(messages))

    def _streamed(self, prompt: list[int]) -> Generator[str, None, ChatReply]:
        streamer = self._transformers.TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        stopped = threading.Event()
        done: list[ChatReply | BaseException] = []

        def stop(ids: Any, scores: Any) -> Any:
            return self._torch.full((len(ids),), stopped.is_set(), device=ids.device)

        def write() -> None:
            try:
                with self._one_at_a_time:
                    done.extend(self._write([prompt], streamer=streamer, stopping_criteria=[stop]))
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
                done.append(error)
                streamer.end()

        writer = threading.Thread(target=write, name="corag-writer", daemon=True)
        writer.start()
        try:
            yield from filter(None, streamer)
        finally:
            stopped.set()
            writer.join()
        [result] = done
        if isinstance(result, BaseException):
            raise result
        return result

    # --- From messages to tokens ---

    def _chat_text(self, messages: Messages) -> str:
        """Return a chat by the model's template; without a system role the instructions go before the question."""
        from jinja2 import TemplateError

        apply = partial(self._tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
        try:
            return str(apply(messages))
        except TemplateError:
            first, *rest = messages
            if first["role"] != "system" or not rest:
                raise
            merged = {"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}
            return str(apply([merged, *rest[1:]]))

    def _as_text(self, text: str) -> str:
        """Return a text whose control tokens are broken up."""
        return self._controls.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

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

    # --- From tokens to replies ---

    def _batches(self, prompts: Sequence[list[int]]) -> Iterator[list[int]]:
        """Yield the places of prompts to answer together, longest first, so that the first takes most memory."""
        batch: list[int] = []
        for row in sorted(range(len(prompts)), key=lambda row: -len(prompts[row])):
            longest = len(prompts[batch[0] if batch else row]) + self.max_answer_tokens
            if batch and longest * (len(batch) + 1) > self._place.batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _write_all(self, prompts: Sequence[list[int]]) -> list[ChatReply]:
        """Return the replies to the prompts of a batch, which is halved where it does not fit the memory."""
        try:
            return self._write(prompts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(prompts) == 1:
                raise ModelError(
                    f"a prompt of {len(prompts[0])} tokens and its reply do not fit the memory of {self._device} "
                    f"beside the model {self.name!r}; lower the token budget or max_answer_tokens, or set "
                    "precision=bf16 or another device"
                ) from error
        # Outside the handler, whose traceback holds what the batch left on the device.
        free_memory()
        middle = len(prompts) // 2
        return [*self._write_all(prompts[:middle]), *self._write_all(prompts[middle:])]

    def _write(self, prompts: Sequence[list[int]], **settings: Any) -> list[ChatReply]:
        """Return the greedy continuation of prompts of a batch; padding stands before a prompt."""
        torch, scores = self._torch, _Scores()
        longest, padding = max(map(len, prompts)), self._padding
        ids = torch.tensor([[padding] * (longest - len(prompt)) + prompt for prompt in prompts], device=self._device)
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=self._device
        )
        note(self._ran)
        with quiet(), torch.inference_mode():
            written = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=self._generation,
                logits_processor=[scores],
                **settings,
            )
        rows = written[:, longest:].tolist()
        values = torch.stack(scores.rows, dim=1).cpu().tolist() if scores.rows else [[] for _ in prompts]
        return [self._reply(row, own, len(prompt)) for row, own, prompt in zip(rows, values, prompts, strict=True)]

    def _reply(self, row: list[int], scores: list[float], prompt_tokens: int) -> ChatReply:
        ends = set(self._ends)
        length = next((position for position, token in enumerate(row) if token in ends), len(row))
        text = self._tokenizer.decode(row[:length], skip_special_tokens=True)
        cut = length == len(row) >= self.max_answer_tokens
        return ChatReply(text, tuple(scores[:length]), cut, prompt_tokens, length)

    @cached_property
    def _ends(self) -> list[int]:
        """Tokens that end a reply."""
        ends = self._model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        return [] if ends is None else list(ends) if isinstance(ends, list) else [ends]

    @property
    def _padding(self) -> int:
        padding = self._tokenizer.pad_token_id
        return int(padding if padding is not None else next(iter(self._ends), 0))

    @cached_property
    def _generation(self) -> Any:
        """Settings for greedy replies, without the sampling settings of the model."""
        return self._transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=self.max_answer_tokens,
            eos_token_id=self._ends or None,
            pad_token_id=self._padding,
        )


class _Scores:
    """Keeps the log-probability of each step's most probable token, `[batch]`; all logits would fill the memory."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, ids: Any, logits: Any) -> Any:
        self.rows.append(logits.float().log_softmax(dim=-1).amax(dim=-1))
        return logits
