"""A router over kinds: from tables of labels to a checkpoint, and what its evaluation says."""

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml

import corag
from corag.errors import DataError
from corag.selectors.corag.routing import FREE, NEAREST
from corag.selectors.corag.tuned import Tuned
from experiments.labels.table import FORMAT_VERSION, write_questions
from experiments.protocol.leads import Quality
from experiments.routing.arrays import KindLabels, read_kind_labels, times_path
from experiments.routing.evaluate import evaluate
from experiments.routing.fit import RouterSettings, best_sharpness, fit_kinds, worths
from experiments.routing.train import main
from experiments.tune.dial import settings_of_dial
from experiments.tune.table import write_labels

NAMES = ("corag", "naive(reranker=bm25)", "top-tokens")
GAINS = {"news": [0.0, 0.2, -0.2], "laws": [0.0, -0.2, 0.1], "recipes": [0.0, -0.1, -0.1]}
TOKENS = [100, 200, 50]
SIZE = 30
ROUTER = RouterSettings(features="query,candidates", unsure=0.1)


def world(gains=GAINS, *, size=SIZE, noise=0.02, seed=0):
    """Rows of labels, and of questions: each kind has a direction of its own."""
    random = np.random.default_rng(seed)
    labels, questions = [], []
    for place, (kind, of_kind) in enumerate(gains.items()):
        for number in range(size):
            query = f"q{number}"
            base = 0.5 + 0.1 * random.standard_normal()
            vectors = np.zeros((2, 4)) + 0.1 * random.standard_normal((2, 4))
            vectors[:, place] += 1
            part = "choosing" if number % 3 == 2 else "training"
            for name, gain, tokens in zip(NAMES, of_kind, TOKENS, strict=True):
                quality = float(np.clip(base + gain + noise * random.standard_normal(), 0, 1))
                labels.append(
                    {
                        "kind": kind, "query": query, "part": part, "group": f"d{number}", "configuration": name,
                        "budget_tokens": 256, "f1": quality, "evidence_recall": quality, "cost_tokens": float(tokens),
                    }
                )  # fmt: skip
            questions.append(
                {
                    "data": kind, "query": query, "question": f"{kind} {number}?",
                    "query_vector": vectors[0].tolist(), "candidates_vector": vectors[1].tolist(),
                }
            )  # fmt: skip
    return labels, questions


def write(path, labels, questions, *, embedder="minilm"):
    write_labels(path, labels, {})
    write_questions(path, questions, {"format_version": FORMAT_VERSION, "embedder": embedder, "settings": {}})
    return str(path)


def read(path, **changes):
    labels, questions = world(**changes)
    return read_kind_labels([write(path / "kinds.parquet", labels, questions)], Quality())


def best_of(router, labels, kind):
    place = [one.name for one in router.kinds].index(kind)
    return labels.names[int(router.worth.utility(FREE)[place].argmax())]


# --- Labels ---


def test_tables_become_arrays_with_the_default_first(tmp_path):
    labels = read(tmp_path)
    assert labels.names == NAMES
    assert (len(labels), labels.kind_names) == (3 * SIZE, ("laws", "news", "recipes"))
    assert labels.measured.budget_share[0].tolist() == pytest.approx([tokens / 256 for tokens in TOKENS])
    assert labels.features(("query", "candidates")).shape == (3 * SIZE, 8)
    assert labels.groups[0] == "news/d0"
    assert not labels.seconds.any()


def test_times_are_means_over_kinds(tmp_path):
    labels, questions = world()
    path = write(tmp_path / "kinds.parquet", labels, questions)
    times_path(path).write_text(json.dumps({"news": {"corag": 0.4, "top-tokens": 0.1}, "laws": {"corag": 0.2}}))
    # One that nobody timed has no time.
    with pytest.raises(DataError, match=r"has no time of naive\(reranker=bm25\)"):
        read_kind_labels([path], Quality())
    times_path(path).write_text(json.dumps({"news": dict.fromkeys(NAMES, 0.4), "laws": dict.fromkeys(NAMES, 0.2)}))
    assert read_kind_labels([path], Quality()).seconds.tolist() == pytest.approx([0.3] * 3)


def without_figures(row):
    return {name: value for name, value in row.items() if name not in ("f1", "evidence_recall")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda labels, _: [row | {"budget_tokens": 512} if row["kind"] == "news" else row for row in labels],
            "budgets",
        ),
        (lambda labels, _: [row for row in labels if row["kind"] == "news"], "of 1 kinds with at least 5"),
        (
            lambda labels, _: [row for row in labels if row["query"] == "q0"][:6],
            "the labels have 2 questions of 0 kinds",
        ),
        (lambda labels, _: [without_figures(row) for row in labels], "no question has an answer or gold passages"),
        (lambda labels, _: [row for row in labels if row["configuration"] == "corag"], "a router needs 'corag' and an"),
        (lambda labels, questions: (questions.pop(), labels)[1], "has no vectors; run: python -m"),
    ],
)
def test_labels_that_teach_no_router_are_one_clear_error(tmp_path, change, message):
    labels, questions = world()
    labels = change(labels, questions)
    path = write(tmp_path / "kinds.parquet", labels, questions)
    with pytest.raises(DataError, match=message):
        read_kind_labels([path], Quality())


def test_labels_of_two_embedders_are_refused(tmp_path):
    labels, questions = world()
    paths = [
        write(tmp_path / f"{embedder}.parquet", labels, questions, embedder=embedder) for embedder in ("minilm", "bge")
    ]
    with pytest.raises(DataError, match=r"labels mix embedders: minilm in .* and bge in .*; label and embed all alike"):
        read_kind_labels(paths, Quality())


def test_a_kind_of_few_questions_is_left_out(tmp_path, caplog):
    labels, questions = world()
    labels = [row for row in labels if row["kind"] != "laws" or row["query"] in ("q0", "q1")]
    found = read_kind_labels([write(tmp_path / "kinds.parquet", labels, questions)], Quality())
    assert found.kind_names == ("news", "recipes")
    assert "fewer than 5 questions are left out: laws" in caplog.text


# --- The fit ---


def test_each_kind_gets_what_serves_it_and_no_kind_gets_the_default(tmp_path):
    labels = read(tmp_path)
    router = fit_kinds(labels, ROUTER, tmp_path / "work", {"news": "questions about news"})
    assert [best_of(router, labels, kind) for kind in GAINS] == [NAMES[1], NAMES[2], NAMES[0]]
    assert labels.names[router.fallback(FREE)] == "corag"
    assert [kind.about for kind in router.kinds] == [
        "questions of laws",
        "questions about news",
        "questions of recipes",
    ]
    routes = router.routes(labels.features(ROUTER.parts), FREE)
    assert np.mean([route.unsure for route in routes]) == pytest.approx(0.1, abs=0.06)
    stranger = np.array([[0, 0, 0, 1.0] * 2])
    assert router.routes(stranger, FREE)[0].unsure
    assert router.as_good[1, 1] > 0.9


def test_worths_are_shrunk_towards_all_kinds(tmp_path):
    few, many = read(tmp_path, size=6, noise=0.3), read(tmp_path, size=200, noise=0.3)
    own = np.array([of_kind for _, of_kind in sorted(GAINS.items())])
    for labels in (few, many):
        worth, unknown = worths(labels)
        plain = np.stack(
            [(labels.quality - labels.quality[:, :1])[labels.kinds == kind].mean(axis=0) for kind in sorted(GAINS)]
        )
        between = (worth.quality - unknown.quality) * (plain - unknown.quality)
        assert (between[:, 1:] >= -1e-12).all()
        assert (np.abs(worth.quality - unknown.quality) <= np.abs(plain - unknown.quality) + 1e-12).all()
    assert np.abs(worths(many)[0].quality - own).max() < 0.1


def test_equal_configurations_keep_the_default_everywhere(tmp_path):
    labels = read(tmp_path, gains=dict.fromkeys(GAINS, [0.0] * 3), noise=0.0)
    found = evaluate(labels, ROUTER, tmp_path / "work", quiet=True)
    for held in found.values():
        assert not held.router.any()
        assert (held.lead().mean, held.lead().p) == (0.0, 1.0)


def test_sharpness_follows_how_well_the_kinds_are_told():
    kinds = np.array([0, 1] * 50)
    apart = np.where(kinds[:, None] == [0, 1], 0.9, 0.1)
    blurred = apart + np.random.default_rng(0).normal(scale=0.5, size=apart.shape)
    assert best_sharpness(blurred, kinds) < best_sharpness(apart, kinds) < NEAREST


# --- The evaluation ---


def test_the_evaluation_gains_what_knowing_the_kind_gives_and_nothing_on_kinds_never_seen(tmp_path):
    found = evaluate(read(tmp_path), ROUTER, tmp_path / "work", quiet=True)
    assert set(found) == {"documents", "kinds", "choosing"}
    for protocol in ("documents", "choosing"):
        held = found[protocol]
        assert held.lead().low > 0
        assert held.gain(held.router).mean() >= 0.8 * held.gain(held.known).mean()
    never = found["kinds"]
    assert len(never.labels) == len(found["documents"].labels)
    assert abs(never.lead().mean) < 0.01
    assert never.unsure.mean() > 0.9
    assert set(found["choosing"].labels.parts) == {"choosing"}


def test_a_higher_price_of_tokens_never_spends_more(tmp_path):
    curve = evaluate(read(tmp_path), ROUTER, tmp_path / "work", quiet=True)["choosing"].curve()
    assert [point.name for point in curve] == list(settings_of_dial())
    rising = sorted((point for point in curve if not point.prices.second), key=lambda point: point.prices.budget)
    shares = [point.budget_share for point in rising]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0]


def test_parts_of_labels_join_to_the_whole(tmp_path):
    labels = read(tmp_path)
    halves = [labels.of(np.arange(len(labels)) % 2 == side) for side in (0, 1)]
    whole = KindLabels.joined(halves)
    assert sorted(whole.quality[:, 1].tolist()) == sorted(labels.quality[:, 1].tolist())
    assert whole.figures["f1"].shape == labels.quality.shape


# --- The command ---


def trained(path, capsys, out="router", **settings):
    labels, questions = world()
    config = path / "router.yaml"
    content = {"labels": write(path / "kinds.parquet", labels, questions), "out": str(path / out), "quiet": True}
    config.write_text(yaml.safe_dump({**content, "router": {"unsure": 0.1, **settings}}))
    code = main(["--config", str(config)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_writes_a_checkpoint_that_the_selector_reads_and_the_same_again(tmp_path, capsys):
    code, shown, error = trained(tmp_path, capsys)
    assert (code, error) == (0, "")
    assert "training questions, in five folds by document" in shown
    out = tmp_path / "router"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "dial.svg", "model.safetensors"]
    tuned = Tuned.load(out)
    assert [one.selector for one in tuned.configurations] == list(NAMES)
    assert tuned.router.kinds[1].about == "questions of news"
    record = json.loads((out / "config.json").read_text())
    assert record["held_out"]["choosing"]["lead"]["low"] > 0
    assert "gained +0." in record["verdict"]
    trained(tmp_path, capsys, out="again")
    for name in ("README.md", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()
    # What it was trained with has vectors of four numbers, which MiniLM has not.
    with pytest.raises(corag.errors.ModelError, match="has centres of 8 numbers, but its features have 768"):
        corag.selector("corag", agent=str(out))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"features": "query,curve"}, "features has 'curve'"), ({"unsure": 2}, "unsure must be from 0 to 1")],
)
def test_settings_that_cannot_be_are_one_line(tmp_path, capsys, settings, message):
    code, _, error = trained(tmp_path, capsys, **settings)
    assert code == 2
    assert message in " ".join(error.split())


@pytest.mark.slow
def test_a_network_tells_the_kinds_apart_the_same_for_one_seed(tmp_path):
    labels = read(tmp_path)
    settings = replace(ROUTER, tells="network", training=replace(ROUTER.training, epochs=4))
    router, again = (fit_kinds(labels, settings, tmp_path / name) for name in ("one", "two"))
    for name, weights in router.network.weights.items():
        assert np.array_equal(weights, again.network.weights[name])
    routes = router.routes(labels.features(settings.parts), FREE)
    assert np.mean([router.kinds[one.kind].name == kind for one, kind in zip(routes, labels.kinds, strict=True)]) > 0.9
