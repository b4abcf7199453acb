import json
from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.cli.main import main
from corag.errors import InputError, ModelError
from corag.selectors.corag.routing import Prices
from corag.selectors.corag.selector import Corag
from corag.selectors.corag.tuned import Tuned
from corag.types import Candidate, Chunk
from experiments.protocol.leads import Quality
from experiments.tune.checkpoint import report
from experiments.tune.choose import Labelled, choose, labelled, priors
from experiments.tune.config import TuneConfig
from experiments.tune.configurations import Configuration, parse_configurations, to_label
from experiments.tune.shrinkage import Estimate, Prior
from experiments.tune.tune import Tuned as Found
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder

PRIOR = Prior(mean=0.0, variance=0.01, within=0.04, kinds=4)
NAMES = ("corag", "naive(reranker=bm25)", "top-tokens")


def questions(number, gains, *, vectors=None, noise=0.05, groups=None):
    """Made labels: the gain of each configuration over the default, `[n, 2]` or one for all."""
    random = np.random.default_rng(3)
    default = 0.5 + 0.1 * random.standard_normal(number)
    others = default[:, None] + np.broadcast_to(gains, (number, 2)) + noise * random.standard_normal((number, 2))
    names = np.array(groups if groups is not None else [str(n) for n in range(number)])
    turn = random.uniform(0, 1, number)
    points = np.column_stack([np.cos(turn), np.sin(turn)]) if vectors is None else vectors
    shares = np.tile([0.8, 0.8, 0.4], (number, 1))
    return Labelled(NAMES, np.column_stack([default, others]), names, points, shares, np.array([0.3, 0.1, 0.01]))


def known():
    return dict.fromkeys(NAMES[1:], PRIOR)


def test_a_configuration_that_gains_is_chosen_and_its_gain_is_that_of_questions_outside():
    found = choose(questions(100, [0.1, 0.02]), known())
    assert found.configuration == NAMES[1]
    assert found.lead.low > 0
    assert found.lead.mean == pytest.approx(0.1, abs=0.02)
    assert found.router is None


def test_what_is_equal_everywhere_keeps_the_default_and_says_so():
    found = choose(questions(60, [0.0, 0.0], noise=0.0), known())
    assert found.configuration == "corag"
    assert (found.lead.mean, found.lead.low, found.lead.high) == (0.0, 0.0, 0.0)
    assert found.router is None


def found_by(chosen):
    return Found(chosen, NAMES, {name: {} for name in NAMES}, [], Prices(), questions=60, groups=60, sealed=0)


@pytest.mark.parametrize(
    ("gain", "mean", "said", "usage"),
    [
        (0.1, 0.1, "Use it: ", "use it with: corag ask 'your question' --agent out"),
        (0.1, -0.1, "Keep the default: ", "to try it all the same: corag ask 'your question' --agent out"),
        (-0.1, 0.0, "Keep the default: ", "corag does the same without it; with a price it can differ: corag ask"),
    ],
)
def test_what_is_said_about_using_a_checkpoint_agrees_with_the_verdict(gain, mean, said, usage):
    chosen = choose(questions(100, [gain, -0.2]), known())
    found = found_by(replace(chosen, lead=replace(chosen.lead, mean=mean, low=mean - 0.05)))
    assert found.verdict.startswith(said)
    assert found.usage("out").startswith(usage)


def test_the_page_lists_configurations_in_the_order_of_what_is_chosen_by():
    chosen = choose(questions(100, [0.1, 0.02]), known())
    # The higher gain is the less certain one.
    unsure = Estimate(own=0.3, posterior=0.3, spread=0.4, prior=0.0, weight=0.5, questions=100)
    found = found_by(replace(chosen, estimates={**chosen.estimates, NAMES[2]: unsure}))
    lines = [
        line for line in report(found, TuneConfig(data="x", out="out")).splitlines() if line.startswith(("| `", "| **"))
    ]
    assert [line.split("`")[1] for line in lines] == [NAMES[1], NAMES[0], NAMES[2]]


def two_kinds(number, gain):
    """Half of the questions gain by the second configuration, the others by the third; their embeddings tell which."""
    kind = np.arange(number) % 2
    gains = np.where(kind[:, None] == [0, 1], gain, -gain)
    turn = 0.1 * np.random.default_rng(0).standard_normal(number) + np.where(kind == 0, 0.2, 1.3)
    return questions(number, gains, vectors=np.column_stack([np.cos(turn), np.sin(turn)]))


def test_a_router_is_kept_where_kinds_exist_and_gain():
    found = choose(two_kinds(120, 0.2), known())
    assert found.router is not None
    assert found.router_lead.p < 0.05 / 3
    routes = found.router.routes(np.array([[np.cos(0.2), np.sin(0.2)], [np.cos(1.3), np.sin(1.3)]]), Prices())
    assert [found.router_names[route.place] for route in routes] == [NAMES[1], NAMES[2]]
    assert np.linalg.norm(found.router.centres, axis=1) == pytest.approx(1)


def test_one_kind_has_no_router():
    found = choose(questions(120, [0.05, 0.0]), known())
    assert found.router is None
    assert found.router_lead is not None


def test_too_few_questions_try_no_router():
    assert choose(questions(30, [0.1, 0.0]), known()).router_lead is None


def test_equal_questions_are_no_kinds():
    assert choose(questions(100, [0.1, 0.0], vectors=np.ones((100, 2))), known()).router_lead is None


def test_questions_of_one_document_are_on_one_side():
    groups = [str(n // 20) for n in range(100)]
    found = choose(questions(100, [0.1, 0.0], groups=groups), known())
    assert found.lead.groups == 5


def test_a_question_without_answer_and_gold_is_left_out():
    rows = [{"a": {"f1": 0.5}, "b": {"f1": 0.7}}, {"a": {"cost_tokens": 5.0}, "b": {"cost_tokens": 6.0}}]
    found = labelled(["a", "b"], rows, ["x", "y"], np.eye(2), Quality())
    assert found.qualities.tolist() == [[0.5, 0.7]]
    assert found.groups.tolist() == ["x"]


def test_priors_come_from_kinds_and_unknown_configurations_are_not_believed():
    rows = [
        {"kind": kind, "query": str(n), "configuration": name, "f1": value}
        for kind, gain in (("a", 0.2), ("b", 0.0))
        for n in range(10)
        for name, value in (("corag", 0.5), ("top-tokens", 0.5 + gain))
    ]
    found = priors(rows, NAMES, "corag", Quality("f1", 0.0))
    assert found["top-tokens"].mean == pytest.approx(0.1)
    assert found["top-tokens"].kinds == 2
    assert found[NAMES[1]].mean == 0.0
    assert found[NAMES[1]].kinds == 0


# --- Configurations ---


@pytest.mark.parametrize("configuration", [*to_label(from_corpus=True)])
def test_a_configuration_is_what_its_spelling_says(configuration):
    assert Configuration.parse(str(configuration)) == configuration
    assert parse_configurations(f"corag, {configuration}") == tuple(
        dict.fromkeys((Configuration("corag"), configuration))
    )


def test_a_configuration_that_cannot_be_is_refused():
    with pytest.raises(InputError, match="retrieval 'dense' is unknown; write SELECTOR, or one of vector"):
        Configuration.parse("dense > corag")
    with pytest.raises(InputError, match="selector 'nive' is unknown"):
        Configuration.parse("text > nive")


# --- The command ---

FEW = ["--configurations", "naive(reranker=bm25), text > top-k(k=1)", "--reader", "first-words", "--quiet", "true"]


def data_folder(path, *, number=24, **fields):
    """A folder whose questions are those of the island, again and again under new names."""
    rows = [{**QUERIES[n % 8], "id": f"q{n}", "split": "train", **fields} for n in range(number)]
    return str(write_folder(path, DOCUMENTS, rows))


def tuned(path, capsys, *arguments, **fields):
    code = main(["tune", "--data", data_folder(path / "data", **fields), "--out", str(path / "out"), *FEW, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_a_checkpoint_and_a_page_come_out_and_agent_takes_them(tmp_path, capsys, reader):
    code, shown, _ = tuned(tmp_path, capsys, "--logger", "csv")
    assert code == 0
    out = tmp_path / "out"
    [figures] = (tmp_path / "out.log").rglob("metrics.csv")
    assert "corag/f1" in figures.read_text().splitlines()[0]
    record = json.loads((out / "config.json").read_text())
    assert record["chosen"]["selector"] in shown
    assert record["verdict"] in shown
    assert "| configuration |" in (out / "README.md").read_text()
    assert '<table class="headline">' in (out / "report.html").read_text()
    selector = corag.selector("corag", agent=str(out))
    found = selector.select("Who founded Tolmere?", candidates(), 64)
    assert found.trace.details["tuned"] == record["chosen"]["selector"]
    again, _, _ = tuned(tmp_path, capsys)
    assert again == 0
    assert json.loads((out / "config.json").read_text()) == record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"number": 2}, [], "has 2 questions with answers or gold passages; at least 20 are needed"),
        ({"answers": [], "gold": []}, [], "none of the 24 questions of"),
        ({"gold": []}, ["--reader", "none"], "has gold passages (and with reader none, answers do not count)"),
        ({}, ["--splits", "dev"], "has no question of split 'dev'"),
        ({}, ["--evidence_weight", "2"], "evidence_weight is a share from 0 to 1, got 2"),
    ],
)
def test_what_cannot_be_tuned_on_is_one_line(tmp_path, capsys, reader, fields, arguments, message):
    code, _, error = tuned(tmp_path, capsys, *arguments, **fields)
    assert code == 2
    assert message in " ".join(error.split())
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.slow
def test_evidence_alone_is_enough(tmp_path, capsys, reader):
    code, _, _ = tuned(tmp_path, capsys, "--reader", "none", answers=[])
    assert code == 0
    assert "f1" not in json.loads((tmp_path / "out" / "config.json").read_text())["verdict"]


# --- The selector ---


def candidates():
    return [
        Candidate(Chunk(one["id"], f"{one['title']}\n{one['text']}", {"title": one["title"]}), 0.9 - 0.01 * place)
        for place, one in enumerate(DOCUMENTS[:6])
    ]


def checkpoint(path, selector, *, router=None, centres=None, **fields):
    """A checkpoint, written by hand."""
    path.mkdir(exist_ok=True)
    content = {
        "form": "corag-tuned",
        "format_version": 1,
        "chosen": {"selector": selector, "retrieval": "text"},
        "router": router,
        "embedder": "two-words",
        **fields,
    }
    (path / "config.json").write_text(json.dumps(content))
    if centres is not None:
        from safetensors.numpy import save_file

        save_file({"centres": np.array(centres, dtype=np.float32)}, path / "model.safetensors")
    return path


class TwoWords:
    """Embeds a question by whether it begins with "who"."""

    name, dimension = "two-words", 2

    def embed(self, texts):
        return np.array([[1.0, 0.0] if text.lower().startswith("who") else [0.0, 1.0] for text in texts], np.float32)


def test_the_chosen_selector_chooses_as_it_does_alone(tmp_path):
    made = Corag(agent=checkpoint(tmp_path / "c", "naive(reranker=bm25)"))
    alone = corag.selector("naive(reranker=bm25)")
    ours, theirs = (one.select("Who founded Tolmere?", candidates(), 40) for one in (made, alone))
    assert (ours.ids, ours.text, ours.cost_tokens) == (theirs.ids, theirs.text, theirs.cost_tokens)
    assert made.wanted_retrieval == "text"
    assert Corag(reranker="bm25").wanted_retrieval is None


def test_a_router_takes_the_selector_of_the_nearest_kind(tmp_path):
    folder = checkpoint(
        tmp_path / "c", "top-k(k=1)", router=["top-k(k=1)", "top-k(k=2)"], centres=[[1.0, 0.0], [0.0, 1.0]]
    )
    made = Corag(agent=folder, embedder=TwoWords())
    questions_ = ["Who founded Tolmere?", "What is Varn?", "Who built it?"]
    assert [len(one) for one in made.select_many(questions_, [candidates()] * 3, 200)] == [1, 2, 1]
    assert [len(made.select(one, candidates(), 200)) for one in questions_] == [1, 2, 1]


def test_settings_beside_a_tuned_choice_are_refused(tmp_path):
    folder = checkpoint(tmp_path / "c", "naive(reranker=bm25)")
    for settings in ({"reranker": "bm25"}, {"unit": "sentence"}, {"policy": "beam"}):
        with pytest.raises(InputError, match="is a checkpoint of corag tune, which chose selector"):
            Corag(agent=folder, **settings)


def test_a_checkpoint_has_no_model_fetched(tmp_path):
    folder = checkpoint(tmp_path / "c", "naive(reranker=nobody/no-such-model)")
    with pytest.raises(ModelError, match="whose model is not on this machine"):
        Corag(agent=folder)


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 3},
        {"format_version": 2},
        {"chosen": {}},
        {"router": ["top-k", "naive"]},
        {"embedder": None, "chosen": None},
    ],
)
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, change):
    folder = checkpoint(tmp_path / "c", "top-k", **change)
    with pytest.raises(ModelError, match=r"is no readable checkpoint of corag tune|format_version 3, this version"):
        Tuned.load(folder)


def test_sealed_questions_are_left_out(tmp_path, capsys, reader, monkeypatch):
    from experiments.protocol import kinds
    from experiments.tune import tune

    kind = replace(kinds.read_kinds().kinds[0], name="data", data="data")
    monkeypatch.setattr(tune, "read_kinds", lambda: kinds.Kinds((kind,)))
    monkeypatch.setattr(tune, "sealed_ids", lambda: {"data": frozenset({"q0", "q1", "q2", "q3", "q4"})})
    code, _, error = tuned(tmp_path, capsys)
    assert code == 2
    assert "has 19 questions with answers or gold passages (5 more are sealed" in " ".join(error.split())
