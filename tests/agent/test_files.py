"""Folders that are replaced as a whole, by one process at a time, whatever moment it is killed at."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.files import folder_lock, replace_folder
from tests.agent.training_job import NUM_EPOCHS, train
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


def test_a_locked_folder_is_written_by_one_at_a_time(tmp_path):
    number = tmp_path / "new" / "number"

    def append(_):
        with folder_lock(number.parent):
            number.write_text(str(int(number.read_text()) + 1 if number.exists() else 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(200)))
    assert number.read_text() == "200"


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
