"""DeepEval's metrics as a judge's figures: its prompts and its rules, with any model that a reader can ask.

DeepEval (github.com/confident-ai/deepeval) is what CAR measured with. Two of its habits are turned off before it is
imported: it reports usage to its makers, and reads `.env` files of the current folder. Up to version 3 its
`HallucinationMetric` scored the share of contradicted contexts, from 4 on the share of the others; here the share of
contradicted ones is counted from its verdicts.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from corag.models.chat.base import Chat, ChatError
from corag.optional import require
from experiments.evaluation.judging.figures import ABSENT, FIGURES, Reading, Verdict, row_of

QUIET = {"DEEPEVAL_TELEMETRY_OPT_OUT": "1", "DEEPEVAL_DISABLE_DOTENV": "1"}
"""Environment under which it is imported; what a user has set stays."""

METRICS = {
    "answer_relevancy": "AnswerRelevancyMetric",
    "contextual_relevancy": "ContextualRelevancyMetric",
    "faithfulness": "FaithfulnessMetric",
    "hallucination": "HallucinationMetric",
}
"""Figures that it has, and its class for each."""


class DeepEvalJudge:
    """Judges with DeepEval's metrics; requests are made one after the other.

    Args:
        chat: The model.
        figures: Names of `METRICS`.

    Raises:
        MissingExtraError: DeepEval is not installed.
    """

    def __init__(self, chat: Chat, figures: Sequence[str]) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        with warnings.catch_warnings():
            # Its and its dependencies' deprecations are no business of ours.
            warnings.simplefilter("ignore")
            self._metrics: Any = require("deepeval.metrics", "deepeval")
            self._cases: Any = require("deepeval.test_case", "deepeval")
        self._model = _model(chat)
        self._figures = list(figures)

    def figures(self, readings: Sequence[Reading]) -> list[dict[str, Any]]:
        """Return the figures of each reading as rows have them; a server that keeps failing is a `ChatError`."""
        return [row_of({name: self._verdict(name, one) for name in self._figures}) for one in readings]

    def _verdict(self, name: str, reading: Reading) -> Verdict | None:
        # What needs no judge is the same whoever judges.
        known = FIGURES[name].known(reading)
        if known is not None:
            return None if known == ABSENT else Verdict(float(known), "")
        parts = reading.parts
        case = self._cases.LLMTestCase(
            input=reading.question, actual_output=reading.answer, retrieval_context=parts, context=parts
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                metric = getattr(self._metrics, METRICS[name])(
                    model=self._model, async_mode=False, include_reason=False, eval_mode="llm"
                )
                score = metric.measure(case, _show_indicator=False)
        except ChatError as error:
            if error.can_retry:
                raise
            return Verdict(None, str(error))
        except Exception as error:  # noqa: BLE001  # It raises what it likes where a reply is not as it should be.
            return Verdict(None, f"DeepEval has no {name}: {type(error).__name__}: {error}")
        verdicts = _verdicts(metric)
        if not verdicts or score is None:
            # It counts nothing found as perfect, or as nothing.
            return Verdict(None, f"DeepEval found nothing to judge for {name}")
        if name == "hallucination":
            return Verdict(sum(verdict == "no" for verdict in verdicts) / len(verdicts), "")
        return Verdict(float(score), "")


def _verdicts(metric: Any) -> list[str]:
    """Return what a metric decided of each statement or context, in lower case."""
    found = getattr(metric, "verdicts", None)
    if found is None:
        found = [one for of_context in metric.verdicts_list for one in of_context.verdicts]
    return [str(getattr(one.verdict, "value", one.verdict)).strip().lower() for one in found if one is not None]


def _model(chat: Chat) -> Any:
    """Return a model for DeepEval that asks ours."""
    base: Any = require("deepeval.models", "deepeval").DeepEvalBaseLLM

    class OwnModel(base):  # type: ignore[misc]
        """The model of a reader."""

        def __init__(self) -> None:
            super().__init__(chat.name)

        def load_model(self) -> Chat:
            return chat

        def generate(self, prompt: str) -> str:
            return chat.ask([{"role": "user", "content": prompt}]).text

        async def a_generate(self, prompt: str) -> str:
            return self.generate(prompt)

        def get_model_name(self) -> str:
            return chat.name

    return OwnModel()
