"""Whether W&B runs online, without asking it."""

import pytest

pytest.importorskip("lightning")

from agent.training.loggers import wandb_mode

KEYS = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL")
LOGGED_IN = "machine api.wandb.ai\n  login user\n  password 0123\n"
OWN = {"WANDB_BASE_URL": "https://wandb.example.org"}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("settings", "netrc", "mode"),
    [
        ({}, None, "offline"),
        ({}, LOGGED_IN, "online"),
        ({}, "machine [\nnonsense", "offline"),
        ({}, "default login a password b\n", "offline"),
        (OWN, LOGGED_IN, "offline"),
        (
            {"WANDB_BASE_URL": "https://wandb.example.org"},
            LOGGED_IN.replace("api.wandb.ai", "wandb.example.org"),
            "online",
        ),
        ({"WANDB_API_KEY": "0123"}, None, "online"),
        ({"WANDB_API_KEY": "0123", "WANDB_MODE": "offline"}, LOGGED_IN, "offline"),
        ({"WANDB_MODE": "disabled"}, LOGGED_IN, "disabled"),
    ],
)
def test_online_where_logged_in(settings, netrc, mode, monkeypatch, tmp_path):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    if netrc is not None:
        (tmp_path / "netrc").write_text(netrc)
    assert wandb_mode() == mode
