"""Folders that are replaced as a whole, whatever moment the process is killed at."""

import pytest

from common.storage import replace_folder


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("killed_before_rename", [0, 1, 2])
def test_no_kill_loses_a_folder_even_if_the_next_call_fails(tmp_path, monkeypatch, killed_before_rename):
    folder, renames = tmp_path / "kept", []
    replace_folder(folder, {"a": "old"})
    rename = type(folder).rename

    def stops(path, target):
        if len(renames) == killed_before_rename:
            raise KeyboardInterrupt
        renames.append(path)
        return rename(path, target)

    monkeypatch.setattr(type(folder), "rename", stops)
    if killed_before_rename < 2:
        with pytest.raises(KeyboardInterrupt):
            replace_folder(folder, {"a": "new"})
    else:
        replace_folder(folder, {"a": "new"})
    monkeypatch.undo()
    with pytest.raises(TypeError):
        replace_folder(folder, {"a": None})
    assert content(folder) == {"a": "new" if killed_before_rename else "old"}
    replace_folder(folder, {"a": "newest"})
    assert content(folder) == {"a": "newest"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
