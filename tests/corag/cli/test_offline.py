"""Every command, with keys but no other variable set, contacts no other machine and writes and prints no key."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from tests.chat_server import ChatServer, Reply
from tests.corag.test_secrets import KEY
from tests.experiments.worlds import MANY_QUERIES, QUERIES, save_small_agent, write_folder, write_labels
from tests.paths import ROOT

pytestmark = pytest.mark.slow

GUARD = ROOT / "tests" / "offline"
PROGRAM = """
import json, sys
from corag.cli.main import main
for command in json.loads(sys.argv[1]):
    assert main(command) == 0, command
"""


def listen(server, came):
    """Keep what is sent to a server, while it is open."""
    with suppress(OSError):
        while True:
            with server.accept()[0] as connection:
                came.append(connection.recv(200))


def test_no_command_contacts_another_machine_or_tells_a_key(tmp_path, small_data):
    came, contacts = [], tmp_path / "contacts.txt"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "HF_"))}
    kept |= {"OPENAI_API_KEY": KEY, "OLLAMA_API_KEY": KEY}
    kept |= {"PYTHONPATH": os.pathsep.join([str(GUARD), str(ROOT)]), "CORAG_TESTS_CONTACTS": str(contacts)}
    save_small_agent(tmp_path / "agent")
    write_labels(tmp_path / "labels.parquet")
    data = ["--data", str(small_data), "--quiet"]
    many = write_folder(tmp_path / "many", queries=MANY_QUERIES)
    unanswered = write_folder(tmp_path / "unanswered", queries=[{**query, "answers": []} for query in QUERIES[:2]])
    labels = ["--labels", "labels.parquet", "--quiet"]
    grid = ["--configurations", "corag(reranker=bm25)", "--iterations", "2", "--limit", "2"]
    evaluate = ["evaluate", *data, "--limit", "1", "--curves", "false"]
    source = {"data": small_data.name, "pool": "corpus", "num_candidates": 4}
    adapter = {
        "data": str(small_data.parent), "out": "adapter", "sources": [source], "quiet": True, "epochs": 1,
    }  # fmt: skip
    (tmp_path / "adapter.yaml").write_text(json.dumps(adapter))
    with ChatServer(Reply("310 metres")) as server, socket.create_server(("127.0.0.1", 0)) as proxy:
        # Programs that are not Python would go through a proxy.
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        kept |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), address)
        threading.Thread(target=listen, args=(proxy, came), daemon=True).start()
        part = f"openai(model=llama3.1:8b, base_url={server.base_url}, max_answer_tokens=20)"
        routed = f"self-route(reader={part})"
        commands = [
            ["list"], ["doctor"], ["data", "list"], ["reproduce", "list"],
            # With a client of OpenAI at hand W&B says something of its own, so what logs comes first.
            ["index", *data, "--out", "index", "--max_tokens", "24"],
            ["ask", "How deep is the lake?", "--index", "index", "--agent", "agent", "--json"],
            ["train", *labels, "--shares", "[0.5,0.25,0.25]", "--training.epochs", "1", "--out", "trained"],
            ["train", "value", "--config", "adapter.yaml"],
            [*evaluate, "--methods", "top-k, corag, mmr", "--out", "result.json", "--logger", "wandb"],
            [*evaluate, "--methods", f"crag(summarizer={part}), {routed}", "--reader", part, "--out", "asked.json"],
            ["data", "references", "--data", str(unanswered), "--reader", part, "--out", "references", "--quiet"],
            ["label", *data, *grid, "--reader", part, "--out", "small.parquet"],
            ["tune", "--data", str(many), "--quiet", "--configurations", f"top-k(k=1), {routed}", "--out", "tuned"],
            ["bench", "search", "--rounds", "1", "--out", "bench"],
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(commands)],
            cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert not contacts.exists(), contacts.read_text()
    assert came == []
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "trained" / "wandb").glob("offline-run-*"))
    assert list((tmp_path / "result.log").rglob("offline-run-*"))
    # W&B itself says nothing; how to send each run is said once.
    assert "wandb:" not in done.stderr and done.stderr.count("W&B") >= 2
    assert {one.get("authorization") for one in server.headers} == {f"Bearer {KEY}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20 and KEY not in done.stdout + done.stderr
    assert not [path for path in files if KEY.encode() in path.read_bytes() or KEY in str(path)]
