"""A real conversation with a real language model behind a real server; what it says is weak, that it says it counts."""

import base64
import hashlib

import pytest
from transformers import AutoTokenizer

import corag
from corag.budget import Budget
from tests.corag.text.tokens.worlds import CONTROL
from tests.fakes import offer
from tests.real_server import model_folder, serving

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


@pytest.mark.slow
def test_a_real_server_answers_alike_and_counts_no_more_than_the_budget(tmp_path):
    model = model_folder()
    with serving(model, tmp_path) as address:
        given = {"base_url": address, "model": str(model), "tokenizer": str(model), "timeout_s": 300}
        reader = corag.reader("openai", max_answer_tokens=16, **given)
        question, context = "Who is the mayor of Berlin?", "Berlin\nThe mayor of Berlin is Anna Weiss."
        answers = reader.answer_many([question] * 2, [context] * 2)
        assert len(set(answers)) == 1 and "Anna Weiss" in answers[0].text
        pieces = reader.stream(question, context)
        assert next(pieces)
        assert "".join(pieces) and reader.answer(question, context) == answers[0]
        brief = corag.reader("openai", max_answer_tokens=1, **given)
        selection = Budget(400, brief).select(corag.selector("full", tokenizer=brief.tokens), QUESTION, offer(*TEXTS))
        served = brief.answer(QUESTION, selection.text).prompt_tokens
    # The server counts as the model's own tokenizer does, and no more than what the budget is held against.
    tokenizer = AutoTokenizer.from_pretrained(model)
    for reply, asked in ((answers[0].prompt_tokens, (question, context)), (served, (QUESTION, selection.text))):
        prompt = tokenizer.apply_chat_template(reader.messages(*asked), tokenize=False, add_generation_prompt=True)
        assert len(tokenizer(prompt, add_special_tokens=False)["input_ids"]) == reply <= reader.prompt_tokens(*asked)
    assert 0.75 * 400 < served <= brief.prompt_tokens(QUESTION, selection.text) <= 400
