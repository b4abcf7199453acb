"""`transformers`: any causal language model in a local folder or on the hub, run in this process."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corag.checks import check_count
from corag.errors import InputError
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import quiet
from corag.models.engine.pytorch import on_device
from corag.models.ran import note, ran
from corag.models.runtime import Precision, place
from corag.naming import Part
from corag.optional import require
from corag.readers.context import answer_chunk
from corag.readers.prompt import SYSTEM, TEMPLATE, check_template, says_no_answer, user_message
from corag.types import Answer


class Generated(NamedTuple):
    """A text without special tokens, and the log-probability of each of its tokens but the end token, `[T]`."""

    text: str
    log_probabilities: tuple[float, ...]


class TransformersReader(Part):
    """Answers with the greedy reply of a causal language model.

    A model with a chat template is prompted with it. Any other gets instructions, context and question as plain text,
    and its reply ends with its first line. Control tokens in a context or a question are broken up, so that the model
    reads them as text.

    Args:
        model: Folder, or name on the hub, of a causal language model with safetensors weights.
        max_new_tokens: Maximum tokens of a reply.
        precision: `fp32`, `bf16` or `fp16`; see `corag.models.runtime`, as for the next.
        device: `cpu`, `cuda`, `cuda:N` or `mps`; of several, the first.
        system: Instructions.
        template: User message with the fields `{context}` and `{query}`.
        trust_remote_code: Whether the model's own code may run.

    Attributes:
        name: `transformers/` and the model.
        max_tokens: Maximum tokens of prompt and reply together; None if neither tokenizer nor model has a limit.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: transformers or PyTorch is not installed.
        ModelError: The model is missing, damaged, or no such model.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        max_new_tokens: int = 64,
        precision: Precision | None = None,
        device: str | None = None,
        system: str = SYSTEM,
        template: str = TEMPLATE,
        trust_remote_code: bool | None = None,
    ) -> None:
        check_count("max_new_tokens", max_new_tokens, "try 64")
        check_template(template)
        where = place(
            "reader", backend="torch", precision=precision, device=device, trust_remote_code=trust_remote_code
        )
        where = replace(where, devices=where.devices[:1])
        self._torch = require("torch", "models")
        checkpoint = Checkpoint(model, task="generation", trust_remote_code=where.trust_remote_code)
        self.name = f"transformers/{model}"
        self.max_tokens = checkpoint.window
        self._checkpoint = checkpoint
        self._tokenizer = checkpoint.tokenizer
        (self._device,) = where.devices
        self._model = on_device(checkpoint.load(where.precision), self._device, checkpoint.name)
        self._record = ran(checkpoint.name, where)
        self._system = system
        self._template = template
        self._max_new_tokens = max_new_tokens
        self._generation = self._greedy()
        self._asked = f"{where.precision} {where.kind} {max_new_tokens} {system!r} {template!r}"
        added = {*self._tokenizer.get_added_vocab(), *self._tokenizer.all_special_tokens}
        controls = {token for token in added if len(token) > 1}
        self._controls = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")

    @cached_property
    def identity(self) -> str:
        """What answers depend on besides question and context."""
        return f"transformers {self._checkpoint.sha256} {self._asked}"

    def answer(self, query: str, context: str) -> Answer:
        """Return the model's reply, stripped; an empty text with confidence 0 if it finds no answer.

        The confidence is the geometric mean of the probabilities of the reply's tokens. For the chunk see
        `corag.readers.context.answer_chunk`.

        Raises:
            InputError: The query is empty, or the prompt is longer than the model takes.
        """
        generated = self.generate(self._prompt(query, context))
        text = generated.text.strip()
        if not text or says_no_answer(text):
            return Answer("", confidence=0.0)
        confidence = float(np.exp(np.mean(generated.log_probabilities)))
        return Answer(text, confidence=confidence, chunk=answer_chunk(text, context))

    def generate(self, prompt: list[int]) -> Generated:
        """Return the greedy continuation of a prompt, given as token ids.

        Raises:
            InputError: The prompt leaves no room for a reply.
        """
        if self.max_tokens is not None and len(prompt) + self._max_new_tokens > self.max_tokens:
            raise InputError(
                f"the prompt has {len(prompt)} tokens and the reply up to {self._max_new_tokens}, more than the "
                f"{self.max_tokens} that the model {self._checkpoint.name!r} takes; lower the token budget or "
                "max_new_tokens, or shorten the question"
            )
        ids = self._torch.tensor([prompt], device=self._device)
        note(self._record)
        with quiet(), self._torch.inference_mode():
            written = self._model.generate(
                input_ids=ids,
                attention_mask=self._torch.ones_like(ids),
                generation_config=self._generation,
                # A plain model stops at the end of a line; a chat model has its own end token.
                **({} if self._chats else {"stop_strings": ["\n"], "tokenizer": self._tokenizer}),
            )
        tokens = written.sequences[0, len(prompt) :].tolist()
        scores = self._torch.stack(written.logits)[:, 0].float().log_softmax(dim=-1).cpu().numpy()
        ends = set(self._ends())
        kept = [(token, float(row[token])) for token, row in zip(tokens, scores, strict=True) if token not in ends]
        text = self._tokenizer.decode([token for token, _ in kept], skip_special_tokens=True)
        return Generated(text, tuple(score for _, score in kept))

    @property
    def _chats(self) -> bool:
        return self._tokenizer.chat_template is not None

    def _prompt(self, query: str, context: str) -> list[int]:
        asked = user_message(self._template, self._as_text(query), self._as_text(context))
        if self._chats:
            return list(self._tokenizer(self._chat(asked), add_special_tokens=False)["input_ids"])
        return list(self._tokenizer(f"{self._system}\n\n{asked}\nAnswer:")["input_ids"])

    def _chat(self, asked: str) -> str:
        """Return the chat by the model's template; without a system role the instructions go before the question."""
        from jinja2 import TemplateError

        apply = partial(self._tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
        try:
            return str(apply([{"role": "system", "content": self._system}, {"role": "user", "content": asked}]))
        except TemplateError:
            return str(apply([{"role": "user", "content": f"{self._system}\n\n{asked}"}]))

    def _as_text(self, text: str) -> str:
        """Return a text whose control tokens are broken up."""
        return self._controls.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _ends(self) -> list[int]:
        """Return the tokens that end a reply."""
        ends = self._model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        return [] if ends is None else list(ends) if isinstance(ends, list) else [ends]

    def _greedy(self) -> Any:
        """Return settings for one greedy reply, without the sampling settings of the model."""
        ends = self._ends()
        padding = self._tokenizer.pad_token_id
        return require("transformers", "models").GenerationConfig(
            do_sample=False,
            max_new_tokens=self._max_new_tokens,
            eos_token_id=ends or None,
            pad_token_id=padding if padding is not None else next(iter(ends), 0),
            return_dict_in_generate=True,
            output_logits=True,
        )
