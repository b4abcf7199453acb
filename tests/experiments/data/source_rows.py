"""A few rows of each data set by part, in the form that its pages and programs describe."""

import json

VARN, CAPITAL, KELL = "Varn is an island.", "Its capital is Tolmere.", "Kell is a village."
ASKED = "What is the capital of Varn?"

PARAGRAPHS = [
    ["Varn", ["Varn is an island.", " Its capital is Tolmere."]],
    ["Tolmere", ["Tolmere was founded in 1203.", " It has a choir."]],
    ["Kell", ["Kell is a village."]],
]
HOTPOTQA = {
    "id": "h0", "question": "When was the capital of Varn founded?", "answer": "1203", "type": "bridge",
    "level": "hard",
    "supporting_facts": {"title": ["Varn", "Tolmere", "Tolmere"], "sent_id": [1, 0, 7]},
    "context": {"title": [title for title, _ in PARAGRAPHS], "sentences": [texts for _, texts in PARAGRAPHS]},
}  # fmt: skip
HOTPOTQA_ORIGINAL = {
    **{name: HOTPOTQA[name] for name in ("question", "answer", "type", "level")},
    "_id": "h0",
    "supporting_facts": [["Varn", 1], ["Tolmere", 0], ["Tolmere", 7]],
    "context": PARAGRAPHS,
}
TWO_WIKI = {
    **{name: HOTPOTQA[name] for name in ("question", "answer", "type")},
    "_id": "w0",
    "supporting_facts": json.dumps([["Varn", 1], ["Tolmere", 0]]),
    "context": json.dumps([[title, [text.strip() for text in texts]] for title, texts in PARAGRAPHS]),
}
MUSIQUE = {
    "id": "2hop__1_2", "question": "When was the capital of Varn founded?",
    "paragraphs": [
        {"title": "Varn", "paragraph_text": CAPITAL, "is_supporting": True},
        {"title": "Kell", "paragraph_text": KELL, "is_supporting": False},
        {"title": "Tolmere", "paragraph_text": "Founded in 1203.", "is_supporting": True},
    ],
    "question_decomposition": [{"question": "Varn >> capital", "answer": "Tolmere"}],
    "answer": "1203", "answer_aliases": ["in 1203", "1203"],
}  # fmt: skip
SQUAD = {
    "id": "s0", "title": "Island_of_Varn", "context": f"{VARN} {CAPITAL}", "question": ASKED,
    "answers": {"text": ["Tolmere", "Tolmere"], "answer_start": [34, 34]},
}  # fmt: skip
POLICYQA = {"key": "data", "value": [{"title": "varn.example", "paragraphs": [{
    "context": "We collect street address and name.",
    "qas": [{"id": "p0", "question": "Do you ask for my address?", "answers": [
        {"text": "street address", "answer_start": 11}, {"text": "address", "answer_start": 18},
    ]}],
}]}]}  # fmt: skip
TATQA = {
    "table": {"uid": "ab-cd34", "table": [["", "2019"], ["Boats", "$ 12"]]},
    "paragraphs": [{"order": 1, "text": "Sales of boats."}, {"order": 2, "text": "Varn."}],
    "questions": [
        {"uid": "q1", "question": "What was sold?", "answer": ["$ 12"], "answer_type": "span",
         "answer_from": "table-text", "rel_paragraphs": ["1"]},
        {"uid": "q2", "question": "What else?", "answer": ["boats", "Varn"], "answer_type": "multi-span",
         "answer_from": "text", "rel_paragraphs": ["1", "2"]},
        {"uid": "q3", "question": "How much?", "answer": 12, "answer_type": "arithmetic", "answer_from": "table",
         "rel_paragraphs": []},
    ],
}  # fmt: skip
QED = {
    "example_id": -42, "title_text": "Varn", "question_text": "what is the capital of varn",
    "paragraph_text": "Varn is an island . Its capital is Tolmere .",
    "original_nq_answers": [[{"string": "Tolmere"}], [{"string": "Varn"}, {"string": "Tolmere"}]],
    "annotation": {"explanation_type": "single_sentence", "selected_sentence": {"start": 20, "end": 44}},
}  # fmt: skip
CLAPNQ = {
    "id": "138", "input": "what is varn known for",
    "output": [
        {"answer": "For glass.", "selected_sentences": ["It is known for glass .&"]},
        {"answer": "Its glass.", "selected_sentences": ["It is known for glass .&"]},
    ],
}  # fmt: skip
PUBMEDQA = {
    "pubid": 214, "question": "Does glass help?",
    "context": {"contexts": ["Glass is old.", "We tried."], "labels": ["BACKGROUND", "METHODS"]},
    "long_answer": "It seems so.", "final_decision": "maybe",
}  # fmt: skip
MSMARCO_QA = {
    "query_id": 5, "query": "capital of varn", "query_type": "LOCATION", "answers": ["Tolmere."],
    "wellFormedAnswers": ["The capital of Varn is Tolmere."],
    "passages": {"is_selected": [0, 1], "passage_text": [VARN, CAPITAL]},
}  # fmt: skip
FACTS = [
    {"title": "Varn votes", "url": "https://a", "fact": "Varn chose Tolmere."},
    {"title": "Kell", "url": "https://b", "fact": "Kell was calm."},
]
MULTIHOP_RAG = [
    {"query": "What did Varn choose?", "answer": "Tolmere", "question_type": "inference_query",
     "evidence_list": FACTS},
    {"query": "Who left?", "answer": "Insufficient information.", "question_type": "null_query", "evidence_list": []},
]  # fmt: skip
MTRAG = {
    "task_id": "c<::>2", "turn": 2, "Collection": "govt", "contexts": [{"document_id": "v-0-20", "text": VARN}],
    "input": [{"speaker": "user", "text": "What is Varn?"}, {"speaker": "agent", "text": "An island."},
              {"speaker": "user", "text": "Who rules it?"}],
    "targets": [{"speaker": "agent", "text": "Tolmere rules it."}],
}  # fmt: skip
HALUEVAL = {
    "knowledge": VARN, "question": "What is Varn?", "right_answer": "an island",
    "hallucinated_answer": "Varn is a city.",
}  # fmt: skip
FELM = {
    "index": 3, "prompt": "What is Varn?", "response": f"{VARN} It has no capital.",
    "segmented_response": [VARN, " ", "\\n\\nIt has no capital."], "labels": [True, True, False],
    "ref": ["https://en.wikipedia.org/wiki/Varn"],
}  # fmt: skip
WIKIBIO = {
    "wiki_bio_test_idx": 62464, "wiki_bio_text": "Ilsa Brandt was a queen.", "gpt3_text": "She had a cat.",
    "gpt3_sentences": ["Ilsa Brandt was a queen.", "She had a cat."], "annotation": ["accurate", "minor_inaccurate"],
}  # fmt: skip


def dpr(key, **marked):
    """A row of DPR: some files name passages by `passage_id`, and mark one."""

    def context(number, text, **more):
        return {"title": "Varn", "text": text, "score": 12.5, key: str(number), **more}

    return {
        "question": ASKED, "answers": ["Tolmere"],
        "positive_ctxs": [context(7, "Tolmere rules Varn."), context(8, CAPITAL, **marked)],
        "negative_ctxs": [context(99, "Far away.")],
        "hard_negative_ctxs": [context(9, VARN), context(8, CAPITAL)],
    }  # fmt: skip


def _scored(text, score):
    return {"text": text, "score": score}


EDC2 = {
    "question": ASKED, "answers": ["Tolmere", "Tolmere"],
    "positive_passages": [_scored("Tolmere rules Varn.", 80.5), _scored(CAPITAL, 82.0)],
    "negative_passages": [_scored("Tolmere has a choir.", 81.0), _scored(KELL, 70.25)],
}  # fmt: skip


def _reviews():
    rows = [("Oro", "Works."), ("Sable", "A fine phone."), ("Oro", ""), ("", "Nameless.")] + [("Sable", "Works.")] * 3
    return [{"Product Name": product, "Reviews": review} for product, review in rows]


def _context(text):
    return {"title": "Varn", "text": text}


HELMET = {
    "question": ASKED, "answers": ["Tolmere"], "ctxs": list(map(_context, [VARN, CAPITAL, KELL])),
    "positive_ctxs": list(map(_context, [CAPITAL, "Not among them."])),
}  # fmt: skip


def _holobench():
    wines = [{"Name": "Kell", "Year": 2008}, {"Name": "Oro", "Year": 2010}, {"Name": "Sable", "Year": 1999}]
    tables = {"wine": wines, "grapes": [{"Name": "Grape", "Year": 1}]}
    rows = [
        {"file": table, "verbalized_text": f"{row['Name']} is from {row['Year']}.", "table_row": json.dumps(row)}
        for table, of_table in tables.items()
        for row in of_table
    ]
    query = {"question": "Which are old?", "query": "SELECT Name FROM Wine WHERE Year < 2009", "difficulty": "easy"}
    databases = ("wine_1", "college_2", "flight_4", "store_1", "soccer_1")
    return {part: found for name in databases for part, found in ((name, rows), (f"queries-{name}", [query]))}


ROWS = {
    "wikipassageqa": {
        "train": [{"QID": "1", "Question": 'What is "Varn"?', "DocumentID": "12", "RelevantPassages": "0,2",
                   "DocumentName": "Island_of_Varn.html"}],
        "dev": [], "test": [],
        "corpus": [{"key": "12", "value": {"0": VARN, "1": "A queen.", "2": "Large."}}],
    },
    "msmarco-qa": {"dev": [MSMARCO_QA, {**MSMARCO_QA, "query_id": 6, "answers": ["No Answer Present."],
                                        "wellFormedAnswers": [],
                                        "passages": {"is_selected": [0, 0], "passage_text": [VARN, CAPITAL]}}]},
    "hotpotqa": {"dev": [HOTPOTQA, HOTPOTQA_ORIGINAL]},
    "2wikimultihopqa": {"dev": [TWO_WIKI]},
    "musique": {"dev": [MUSIQUE]},
    "natural-questions": {"dev": [dpr("passage_id", score=1000)]},
    "triviaqa": {"dev": [dpr("psg_id")]},
    "nq_qed": {"dev": [QED, {**QED, "example_id": 43, "annotation": {"explanation_type": "none"}},
                       {**QED, "example_id": 44, "annotation": {"explanation_type": "multi_sentence"}}]},
    "edc2-rag": {"webq": [EDC2]},
    "amazon-phones": {"reviews-4": _reviews()},
    "squad": {"dev": [SQUAD, SQUAD | {"id": "s1"}]},
    "policyqa": {"dev": [{"key": "version", "value": "1.0"}, POLICYQA]},
    "tatqa": {"dev": [TATQA]},
    "multihop-rag": {
        "test": MULTIHOP_RAG,
        "corpus": [
            {"title": "Varn votes", "url": "https://a", "body": "The island votes. Varn chose Tolmere. More."},
            {"title": "Kell", "url": "https://b", "body": "Kell is calm."},
        ],
    },
    "multihoprag_facts": {"test": MULTIHOP_RAG},
    "clapnq": {
        "dev": [CLAPNQ, {"id": 276, "input": "who left varn", "output": [{"answer": None}]}],
        "dev-retrieval": [{"id": "138", "doc-id-list": "82_1-9"}],
        "corpus": [{"id": "82_1-9", "text": VARN, "title": "Varn"}, {"id": "82_10-20", "text": KELL, "title": ""}],
    },
    "mtrag": {"all": [MTRAG, MTRAG | {"task_id": "c<::>3", "contexts": []}]},
    "chroma_spans": {
        "all": [{"corpus_id": "varn", "question": ASKED, "references": json.dumps(
            [{"content": VARN, "start_index": 5, "end_index": 5 + len(VARN)},
             {"content": "Kell.", "start_index": 6 + len(VARN), "end_index": 11 + len(VARN)}]
        )}],
        "corpus": [{"file": "varn", "text": f"Far.\r\n{VARN}\r\nKell.\r\n"}],
    },
    "pubmedqa": {"train": [PUBMEDQA]},
    "halueval": {"test": [HALUEVAL, HALUEVAL]},
    "felm": {"wk": [FELM]},
    "wikibio": {"test": [WIKIBIO]},
    "helmet-rag": {"nq": [HELMET, HELMET, HELMET | {"question": "who rules varn"}]},
    "holobench": _holobench(),
}  # fmt: skip
