import json
import os

import pytest

from aninfonce_jax import files


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = files.write_bytes(tmp_path / "b.bin", b"first")
    files.write_bytes(path, b"second")
    assert path.read_bytes() == b"second"
    assert os.listdir(path.parent) == ["b.bin"]


def test_a_folder_that_was_removed_is_not_made_again(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_bytes(tmp_path / "gone" / "b.bin", b"")
    assert os.listdir(tmp_path) == []


def test_the_old_file_stays_if_writing_fails(tmp_path, monkeypatch):
    path = files.write_bytes(tmp_path / "kept", b"old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_json_is_strict_and_keeps_its_letters(tmp_path):
    value = {"Λ": [1.5, float("nan")], "n": (float("inf"), 2, None), "text": "ℓ2"}
    path = files.write_json(tmp_path / "value.json", value)
    text = path.read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "Λ": [1.5, None],
        "n": [None, 2, None],
        "text": "ℓ2",
    }
    assert "Λ" in text
    assert "ℓ2" in text
