import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from experiments.run.headline import (
    MOST_CASES,
    MOST_QUESTIONS,
    cases,
    headline,
    lead_of,
    main_figure,
    marked,
    read_rows,
)
from experiments.run.report import ReportConfig, report, write_report
from tests.experiments.run.test_report import parsed, result_of
from tests.experiments.worlds import write_folder

DOCUMENTS = [
    {"id": "d1", "title": "", "text": "The capital is Ulaanbaatar, and ulaanbaatar is cold."},
    {"id": "d2", "title": "", "text": "<script>alert(1)</script> Zstd is a format."},
]


def rows_of(values, **fields):
    """Rows of questions q0, q1, ... with these F1."""
    return [
        {
            "query": f"q{number}", "f1": value, "evidence_recall": value, "cost_tokens": 40, "latency_ms": 1.0,
            "answer": f"answer {value}", "ids": ["d1"] if value else ["d2"], **fields,
        }
        for number, value in enumerate(values)
    ]  # fmt: skip


def pair(values, budget=64):
    """A result and its rows; each method's figures are the means of its values."""
    rows = {method: rows_of(of_one) for method, of_one in values.items()}
    result = result_of(budget, methods=tuple(values))
    for method in result["methods"]:
        of_one = values[method["method"]]
        method.update(f1=sum(of_one) / len(of_one), evidence_recall=sum(of_one) / len(of_one), cost_tokens=40.0)
    return result | {"queries": len(next(iter(values.values())))}, rows


def test_the_challenger_meets_the_best_other_selector_and_its_lead_is_that_of_the_pairs():
    values = {
        "corag(agent=none)": [1.0] * 8,
        "top-k": [0.0] * 8,
        "mmr": [0.5] * 8,
        "corag": [0.75] * 8,
        "upper": [1.0] * 8,
    }
    found = lead_of(*pair(values), "f1")
    assert (found.challenger, found.baseline, found.share_of_tokens) == ("corag", "mmr", 1.0)
    # Every pair differs by .25, so every resample does.
    assert found.interval == (0.25, 0.25, 0.25)
    assert str(found) == "+0.250 (+0.250 to +0.250) against mmr at 64 tokens with 100% of its tokens"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"top-k": [0.0, 1.0], "mmr": [1.0, 1.0]}, ("mmr", "top-k")),  # without corag, the best is told of
        ({"corag": [0.5, 0.5], "corag-fixed": [0.0, 1.0]}, ("corag", "corag-fixed")),  # its variants where alone
        ({"corag": [0.5, 0.5], "upper": [1.0, 1.0]}, None),
        ({"corag": [0.5, 0.5]}, None),
    ],
)
def test_who_meets_whom(values, expected):
    found = lead_of(*pair(values), "f1")
    assert (found and (found.challenger, found.baseline)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"corag": [1.0] * 9, "mmr": [0.0] * 9}, "corag is ahead of the best other method at 64 tokens, beyond chance"),
        ({"corag": [0.0] * 9, "mmr": [1.0] * 9}, "corag is behind the best other method at 64 tokens, beyond chance"),
        ({"corag": [0.0, 1.0] * 4, "mmr": [1.0, 0.0] * 4}, "differ by no more than chance"),
        ({"corag": [1.0] * 3}, ""),
    ],
)
def test_the_verdict_says_what_is_beyond_chance(values, expected):
    result, rows = pair(values)
    said = headline([result], [rows]).verdict
    assert expected in said and bool(said) == bool(expected)
    if expected:
        assert f"(F1, {len(rows['corag'])} questions)" in said


def test_without_rows_nothing_is_called_certain():
    result, _ = pair({"corag": [1.0] * 9, "mmr": [0.0] * 9})
    found = headline([result], [None])
    assert "may be chance" in found.verdict and not found.intervals
    assert "+1.000 against mmr" in found.verdict


def test_budgets_have_a_lead_each_and_the_table_is_ranked():
    low, high = pair({"corag": [1.0] * 9, "mmr": [0.0] * 9}, 64), pair({"corag": [0.0] * 9, "mmr": [1.0] * 9}, 128)
    found = headline([low[0], high[0]], [low[1], high[1]])
    assert "ahead of the best other method at 64 tokens, behind the best other method at 128 tokens" in found.verdict
    assert [(row[0], row[1].text) for row in found.table.rows] == [
        ("64", "corag"), ("", "mmr"), ("128", "mmr"), ("", "corag")
    ]  # fmt: skip
    assert found.table.rows[0][2].replace("\u00a0", " ") == "1.000 (1.000 to 1.000)"


def test_without_answers_evidence_counts():
    result, rows = pair({"corag": [1.0] * 4, "mmr": [0.0] * 4})
    for method in result["methods"]:
        method["f1"] = None
    assert main_figure([result]) == "evidence_recall"
    assert "(evidence recall, 4 questions)" in headline([result], [rows]).verdict


def test_wins_come_first_with_contexts_evidence_and_the_answer_marked(tmp_path):
    queries = [
        {"id": f"q{number}", "question": f"What is {number} <b>?", "answers": ["Ulaanbaatar"], "gold": ["d1"]}
        for number in range(4)
    ]
    folder = write_folder(tmp_path / "data", DOCUMENTS, queries)
    result, rows = pair({"corag": [1.0, 0.0, 0.5, 0.5], "mmr": [0.0, 1.0, 0.25, 0.5]})
    result["data"] = str(folder)
    found = cases(result, rows, lead_of(result, rows, "f1"), "f1")
    assert [case.difference for case in found] == [1.0, 0.25, -1.0]
    ours, theirs = found[0].ours, found[0].theirs
    assert [evidence for _, evidence in ours.chunks] == [True] and [evidence for _, evidence in theirs.chunks] == [
        False
    ]
    assert [piece.text for piece in ours.chunks[0][0] if piece.marked] == ["Ulaanbaatar", "ulaanbaatar"]
    html = write_report(tmp_path / "r.html", [result], [rows], title="T").read_text()
    text = " ".join(parsed(html).text)
    assert "64 tokens: 2 won, 1 lost, 1 alike" in text and "What is 0 <b>?" in text
    assert "<script>alert" not in html and "alert(1)" in text
    assert parsed(html).tags.count("mark") > 0


def test_without_the_data_ids_stand_for_texts(tmp_path):
    result, rows = pair({"corag": [1.0], "mmr": [0.0]})
    result["data"] = str(tmp_path / "nowhere")
    (case,) = cases(result, rows, lead_of(result, rows, "f1"), "f1")
    assert (case.question, case.ours.chunks) == ("q0", ())


def test_a_page_of_many_questions_stays_small(tmp_path):
    number = 3 * MOST_QUESTIONS
    queries = [{"id": f"q{n}", "question": "Why? " * 30, "answers": ["x"], "gold": ["d1"]} for n in range(number)]
    texts = [row | {"text": row["text"] * 500} for row in DOCUMENTS]
    result, rows = pair({"corag": [1.0, 0.0] * (number // 2), "mmr": [0.0, 1.0] * (number // 2)})
    result["data"] = str(write_folder(tmp_path / "data", texts, queries))
    page = write_report(tmp_path / "r.html", [result], [rows], title="T")
    assert page.stat().st_size < 3_000_000
    text = " ".join(parsed(page.read_text()).text)
    assert text.count("Reference:") == 2 * MOST_CASES and f"{number - MOST_QUESTIONS} more" in text


def written(path, result, rows):
    path.write_text(json.dumps(result))
    lines = [json.dumps({"method": method, **row}) for method, of_one in rows.items() for row in of_one]
    path.with_suffix(".rows.jsonl").write_text("\n".join(lines))
    return path


def test_the_command_reads_the_rows_beside_a_result(tmp_path):
    path = written(tmp_path / "a.json", *pair({"corag": [1.0] * 9, "mmr": [0.0] * 9}))
    page = report(ReportConfig(str(path), out=str(tmp_path / "r.html"))).read_text()
    assert "beyond chance" in page and "9 won, 0 lost" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "holds no rows of"),
        (lambda text: text.replace('"mmr"', '"top-k"'), "holds no rows of"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "is not of"),
        (lambda text: "", "is not of"),
        (lambda text: "[1]", "holds no rows of"),
    ],
)
def test_rows_of_something_else_are_refused(tmp_path, change, message):
    path = written(tmp_path / "a.json", *pair({"corag": [1.0] * 9, "mmr": [0.0] * 9}))
    rows = path.with_suffix(".rows.jsonl")
    rows.write_text(change(rows.read_text()))
    with pytest.raises(DataError, match=message):
        report(ReportConfig(str(path), out=str(tmp_path / "r.html")))


@given(st.text(alphabet="aAbİß .", max_size=30), st.lists(st.text(alphabet="aAbİß", max_size=4), max_size=3))
def test_marking_changes_no_text(text, answers):
    pieces = marked(text, answers)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text.lower() in {answer.strip().lower() for answer in answers} for piece in pieces if piece.marked)


def test_read_rows_without_a_file(tmp_path):
    assert read_rows(tmp_path / "a.json", result_of()) is None
