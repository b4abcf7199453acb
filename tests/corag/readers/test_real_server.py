"""A real conversation with a real language model behind a real server; what it says is weak, that it says it counts."""

import base64
import hashlib
import json

import pytest
from transformers import AutoTokenizer

import corag
from corag.budget import Budget
from corag.cli.main import main
from corag.types import Candidate, Chunk
from tests.corag.text.tokens.worlds import CONTROL

pytestmark = pytest.mark.slow


def test_ask_answers_from_the_command_line(real_server, small_index, capsys):
    question = "Who is the mayor of Riverton?"
    main(["ask", question, "--index", str(small_index), "--reader", real_server.reader, "--budget", "400", "--json"])
    reply = json.loads(capsys.readouterr().out)
    assert reply["answer"] and reply["exact"] is True
    assert reply["tokenizer"] == real_server.model
    # The server's own count of the prompt is what the budget is held against.
    assert 0 < reply["usage"]["prompt_tokens"] <= reply["prompt_tokens"] <= 400
    assert 0 < reply["usage"]["answer_tokens"] <= 24


def test_every_way_to_ask_gives_one_answer(real_server, language_model):
    """The server counts as the model's own tokenizer does, and answers alike, streamed or not, alone or with others."""
    question, context = "Who is the mayor of Berlin?", "Berlin\nThe mayor of Berlin is Anna Weiss."
    reader = corag.reader(real_server.reader)
    answers = reader.answer_many([question] * 2, [context] * 2)
    assert len(set(answers)) == 1 and "Anna Weiss" in answers[0].text
    pieces = reader.stream(question, context)
    assert next(pieces)
    assert "".join(pieces) and reader.answer(question, context) == answers[0]
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    asked = reader.messages(question, context)
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    counted = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    assert counted == answers[0].prompt_tokens <= reader.prompt_tokens(question, context)


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


def sent(server, tokenizer, budget_tokens):
    """Select, ask the server, and return the reader, the selection and the server's count of the prompt."""
    tokenizer = server.model if tokenizer == "own" else tokenizer
    given = {"base_url": server.base_url, "model": server.model, "max_answer_tokens": 1, "timeout_s": 300}
    reader = corag.reader("openai", tokenizer=tokenizer, **given)
    pool = [Candidate(Chunk(str(place), text), 1 - place / 100) for place, text in enumerate(TEXTS)]
    selection = Budget(budget_tokens, reader).select(corag.selector("full", tokenizer=reader.tokens), QUESTION, pool)
    return reader, selection, reader.answer(QUESTION, selection.text).prompt_tokens


@pytest.mark.parametrize(("tokenizer", "budget_tokens", "least_share"), [("own", 400, 0.75), ("estimate", 700, 0.3)])
def test_no_prompt_that_is_sent_exceeds_the_budget(real_server, tokenizer, budget_tokens, least_share):
    reader, selection, served = sent(real_server, tokenizer, budget_tokens)
    assert len(selection) >= 3
    assert reader.prompt_tokens(QUESTION, selection.text) <= budget_tokens
    # What is exact or an upper bound holds against the server's own count, too.
    assert least_share * budget_tokens < served <= reader.prompt_tokens(QUESTION, selection.text)
