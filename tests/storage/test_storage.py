"""Folders that are replaced as a whole, by one process at a time, whatever moment it is killed at."""

import os

import pytest

from storage import replace_folder
from tests.agent.worlds import NUM_EPOCHS, train
from tests.processes import fork_server


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("killed_before_rename", [0, 1, 2])
def test_no_kill_loses_a_folder_even_if_the_next_call_fails(tmp_path, monkeypatch, killed_before_rename):
    folder, renames = tmp_path / "kept", []
    replace_folder(folder, {"a": "old"}, "a test")
    rename = type(folder).rename

    def stops(path, target):
        if len(renames) == killed_before_rename:
            raise KeyboardInterrupt
        renames.append(path)
        return rename(path, target)

    monkeypatch.setattr(type(folder), "rename", stops)
    if killed_before_rename < 2:
        with pytest.raises(KeyboardInterrupt):
            replace_folder(folder, {"a": "new"}, "a test")
    else:
        replace_folder(folder, {"a": "new"}, "a test")
    monkeypatch.undo()
    with pytest.raises(TypeError):
        replace_folder(folder, {"a": None}, "a test")
    assert content(folder) == {"a": "new" if killed_before_rename else "old"}
    replace_folder(folder, {"a": "newest"}, "a test")
    assert content(folder) == {"a": "newest"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.slow
def test_two_trainings_into_one_folder_are_one(tmp_path):
    context = fork_server()
    processes = [context.Process(target=train, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [os.EX_OK, os.EX_OK]
    assert len(train(tmp_path).history) == NUM_EPOCHS
