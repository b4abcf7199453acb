import os
import platform
import subprocess
import sys

from agent.files import replace_file


def test_drafts_of_killed_processes_go_with_the_next_write_and_those_of_running_ones_stay(tmp_path):
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    host = platform.node()
    abandoned = tmp_path / f".state.bin.{host}-{finished.pid}.part"
    others = [
        tmp_path / f".state.bin.{host}-{os.getppid()}.part",
        tmp_path / f".state.bin.another-machine-{finished.pid}.part",
        tmp_path / f".other.bin.{host}-{finished.pid}.part",
        tmp_path / f".state.bin.{host}-word.part",
    ]
    for draft in (abandoned, *others):
        draft.write_bytes(b"half")
    replace_file(tmp_path / "state.bin", b"whole")
    assert (tmp_path / "state.bin").read_bytes() == b"whole"
    assert not abandoned.exists() and all(draft.exists() for draft in others)
