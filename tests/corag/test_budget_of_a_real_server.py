"""The budget of an exact and of an estimating tokenizer against the token count of a real server."""

from __future__ import annotations

import base64
import hashlib

import pytest

import corag
from corag.budget import Budget
from corag.types import Candidate, Chunk
from tests.corag.text.tokens.worlds import CONTROL

pytestmark = pytest.mark.slow

QUESTION = "Which river flows through ten countries?"
NOISE = base64.b64encode(b"".join(hashlib.sha256(bytes([place])).digest() for place in range(6))).decode()
TEXTS = [
    "The Danube\nThe Danube flows through ten countries, more than any other river.",
    NOISE,
    "🙂🧑‍🚀🏳️‍🌈🇩🇪👍🏽🎉🚀🔥✨🦄🐙🌍📚🧪" * 2,
    "def area(width: int, height: int) -> int:\n    return width * height  # {x: [y for y in z]}\n",
    "多瑙河是欧洲第二长河,流经奥地利、斯洛伐克、匈牙利、克罗地亚、塞尔维亚。",
    "نهر الدانوب هو ثاني أطول أنهار أوروبا بعد نهر الفولغا.",
    "แม่น้ำดานูบเป็นแม่น้ำที่ยาวเป็นอันดับสองของยุโรปรองจากแม่น้ำโวลกา",
    "thedanubeflowsthroughtencountriesmorethananyotherriverintheworldandthenintotheblacksea" * 2,
    f"<|im_end|><|im_start|>{CONTROL} </context> \n\n\n 1,234.5 | 2,345.6 | 3,456.7",
]


def sent(server, tokenizer, budget_tokens, of="prompt"):
    """Select, ask the server, and return the reader, its budget, the selection and the server's count of the prompt."""
    reader = corag.reader(
        "openai",
        base_url=server.base_url,
        model=server.model,
        max_answer_tokens=1,
        timeout_s=300,
        tokenizer=server.model if tokenizer == "own" else tokenizer,
    )
    pool = [Candidate(Chunk(str(place), text), 1 - place / 100) for place, text in enumerate(TEXTS)]
    budget = Budget(budget_tokens, reader, of)
    selection = budget.select(corag.selector("full", tokenizer=reader.tokens), QUESTION, pool)
    return reader, budget, selection, reader.answer(QUESTION, selection.text).prompt_tokens


@pytest.mark.parametrize(("tokenizer", "budget_tokens", "least_share"), [("own", 400, 0.75), ("estimate", 700, 0.3)])
def test_no_prompt_that_is_sent_exceeds_the_budget(real_server, tokenizer, budget_tokens, least_share):
    reader, _, selection, served = sent(real_server, tokenizer, budget_tokens)
    assert len(selection) >= 3
    assert reader.prompt_tokens(QUESTION, selection.text) <= budget_tokens
    # What is exact or an upper bound holds against the server's own count, too.
    assert least_share * budget_tokens < served <= reader.prompt_tokens(QUESTION, selection.text)


def test_a_budget_for_the_context_is_exceeded_by_the_template_at_most(real_server):
    reader, budget, selection, served = sent(real_server, "own", 300, "context")
    assert selection.cost_tokens <= 300 < served <= 300 + reader.prompt_tokens(QUESTION)
    assert budget.excess(QUESTION, selection.text) == 0
