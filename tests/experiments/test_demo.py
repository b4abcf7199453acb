import json
import pydoc_data.topics
import re
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import pytest

import agent
import experiments.demo as demo_data
from common.configuration import split_parts
from experiments.demo import SPLITS, load
from experiments.demo.run import BUDGETS, CONFIGURATIONS, LABEL_BUDGET, METHODS, DemoConfig, demo
from experiments.labels.table import read_labels
from tests.offline.sitecustomize import refuse

FEW_TOPICS = [
    *("global", "nonlocal", "return", "break", "continue", "pass", "assert", "del", "yield", "lambda", "raise"),
    *("binary", "dict", "slicings", "subscriptions", "booleans", "exprlists", "shifting", "bitwise", "unary"),
    *("power", "truth", "lists", "conversions", "identifiers", "atom-identifiers"),
    *("floating", "integers", "imaginary", "numbers"),
]


def squeezed(text):
    """Without what versions of Python write differently."""
    return re.sub("[\\s\"'`*\u201c\u201d\u2018\u2019]+", "", text).lower()


@pytest.fixture(scope="module")
def whole():
    return load()


def test_no_topic_and_no_question_is_in_two_splits(whole):
    splits_of, questions = {}, Counter(row["question"] for row in whole.queries)
    for row in whole.queries:
        for topic in {gold.split("#")[0] for gold in row["gold"]} | set(row["topics"]):
            splits_of.setdefault(topic, set()).add(row["split"])
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert set(questions.values()) == {1}


def test_every_evidence_stands_in_the_corpus(whole):
    texts = {row["id"]: row["text"] for row in whole.documents}
    files = [Path(demo_data.__file__).with_name(f"questions_{group}.jsonl") for group in SPLITS]
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    written = {row["id"]: row for row in rows}
    assert len(written) == len(rows)
    for row in whole.queries:
        evidence = written[row["id"]]["evidence"]
        assert len(row["gold"]) == len(evidence) > 0
        assert row["answers"] == [written[row["id"]]["answer"]] and row["answers"][0].strip()
        for gold, quote in zip(row["gold"], evidence, strict=True):
            topic, start, end = re.fullmatch(r"(.+)#(\d+)-(\d+)", gold).groups()
            assert squeezed(texts[topic][int(start) : int(end)]) == squeezed(quote["quote"]) != ""


@pytest.mark.slow
def test_the_whole_demo_on_a_few_topics_and_again(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("CORAG_TESTS_CONTACTS", str(tmp_path / "contacts.txt"))
    sys.addaudithook(refuse)
    few = {name: pydoc_data.topics.topics[name] for name in FEW_TOPICS}
    monkeypatch.setattr(pydoc_data.topics, "topics", few)
    out = tmp_path / "demo"
    config = DemoConfig(out=str(out), limit=4)
    page = demo(config)
    assert page == out / "comparison" / "comparison.html"
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 1 and html.count("<summary>All measures at ") == len(BUDGETS)
    printed = capsys.readouterr().out
    assert "checkpoint in" in printed and "On 4 validation questions it gains" in printed and "[1" in printed
    labels = read_labels(str(out / "labels.parquet"))
    assert len(labels) == 8 and labels.metadata[0]["settings"]["budget"] == LABEL_BUDGET
    loaded = agent.load(out / "agent" / "checkpoint")
    assert loaded.has_network and loaded.config.fallback in CONFIGURATIONS
    methods = list(map(str, split_parts(METHODS)))
    assert all(f'<th scope="col">{method}</th>' in unescape(html) for method in methods)
    for budget in BUDGETS:
        result = json.loads((out / "comparison" / f"data-{budget}.json").read_text())
        assert result["queries"] == 4 and [row["method"] for row in result["methods"]] == methods
        assert all(row["over_budget"] == 0 for row in result["methods"])

    def made():
        kept = [*(out / "index").rglob("*"), out / "labels.parquet", *out.glob("comparison/*.json*")]
        return {str(path): path.stat().st_mtime_ns for path in kept}

    before = made()
    assert demo(config) == page
    assert made() == before
    assert not list(out.glob("*journal*"))
    # It asks no other machine, W&B's neither.
    assert list(out.rglob("offline-run-*")) and not (tmp_path / "contacts.txt").exists()
