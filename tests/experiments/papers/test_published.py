"""The papers' own figures in the studies agree with themselves, as far as the papers do."""

import pytest

from corag.naming import parse
from corag.registry import READERS, SELECTORS
from experiments.data.catalogue import find_data_set
from experiments.evaluation.config import EvaluateConfig
from experiments.papers.study import cells_of, find_study, study_files

OTHERS = [name for name in study_files() if name.startswith(("adaptive-k-", "car-", "crag-", "edc2-"))]


def published(name):
    """The paper's rows of a study."""
    return find_study(name).published.rows


@pytest.mark.parametrize("name", OTHERS)
def test_a_study_names_splits_and_parts_that_there_are(name):
    for cell in cells_of(find_study(name)):
        assert cell.settings["split"] in find_data_set(cell.settings["data"]).splits
        config = EvaluateConfig(**cell.settings, methods=tuple(cell.methods.values()))
        for text in (config.reader, *cell.methods.values()):
            for role, registry in (("reader", READERS), ("part", SELECTORS)):
                if (inner := parse(text).settings.get(role)) is not None:
                    assert registry.settings(inner)


@pytest.mark.parametrize(
    ("name", "data", "method", "mean"),
    [
        ("edc2-noise-top20", "WebQ", "RALM", 86.80), ("edc2-noise-top20", "WebQ", "EDC2-RAG", 87.30),
        ("edc2-redundancy", "TriviaQA", "RALM", 93.42),
        ("edc2-redundancy", "TriviaQA", "Raw_Compression", 93.32), ("edc2-redundancy", "TriviaQA", "EDC2-RAG", 93.72),
        ("edc2-redundancy", "WebQ", "RALM", 88.45), ("edc2-redundancy", "WebQ", "Raw_Compression", 87.84),
        ("edc2-redundancy", "WebQ", "EDC2-RAG", 88.92),
    ],
)  # fmt: skip
def test_rows_have_the_averages_that_the_paper_prints(name, data, method, mean):
    values = [row["values"][0] for row in published(name) if (row["data"], row["method"]) == (data, method)]
    assert len(values) == 6
    assert 100 * sum(values) / 6 == pytest.approx(mean, abs=0.011)
