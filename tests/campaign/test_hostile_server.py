"""Servers of files that answer in every bad way: a file or one clear error, and fit for the next."""

import hashlib
import re
import time

import pytest

from corag.errors import DataError
from corag.text.visible import visible
from experiments.data.sources.fetch import from_web
from tests.campaign.hostile_server import MODES, HostileServer, whole

pytestmark = pytest.mark.slow

CONTENT = b"What was asked for."
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def hostile():
    with HostileServer() as server:
        yield server


@pytest.mark.parametrize("mode", [mode for mode in MODES if not re.search("endless|drop by drop|for ever", mode)])
def test_a_hostile_server_of_files(hostile, monkeypatch, tmp_path, figure, mode):
    import huggingface_hub.constants as constants
    from huggingface_hub.utils import close_session

    monkeypatch.setenv("CORAG_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    # Between one try and the next.
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hostile.mode = MODES[mode]
    for md5 in ("", MD5):
        try:
            assert from_web(f"{hostile.host}/{md5}f.bin", md5, quiet=True).stat().st_size > 0 == len(md5)
            figure("hostile files: taken as they came", 1)
        except DataError as error:
            assert "\n" not in str(error) and visible(str(error)) == str(error) and len(str(error)) < 1000
            assert hostile.host in str(error)
            figure("hostile files: one clear error", 1)
    hostile.mode = whole(lambda path: CONTENT)
    # A connection that the server has closed meanwhile is not taken up again.
    close_session()
    assert from_web(f"{hostile.host}/{MD5}f.bin", MD5, quiet=True).read_bytes() == CONTENT
    assert not list(tmp_path.rglob(f"*{MD5}f.bin.part"))
