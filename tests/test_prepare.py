import dataclasses
import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from image_files import encode, random_image, write_cifar10, write_folder, write_mnist

from aninfonce_jax.data import prepare as prepare_lib
from aninfonce_jax.data import recipes
from aninfonce_jax.prepare import _Bar, main

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments):
    return main(["prepare", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: dataset, --from, --to; see --help"),
        (["svhn", "--from=a", "--to=b"], "invalid choice: 'svhn'"),
        (["mnist", "--from=a"], "the following arguments are required: --to"),
        (["mnist", "--from=a", "--to=b", "--fast"], "unrecognized arguments: --fast"),
        (["mnist", "--from=a", "--to=b", "--name=c"], "--name is for `folder`; mnist has a name"),
        (["mnist", "--from=a", "--to=b", "--threads=0"], "--threads must be at least 1, got 0"),
        (["mnist", "--from=a", "--to=b", "--decode_mib=0"], "--decode_mib must be at least 1, "),
        (["mnist", "--from=nowhere", "--to=b"], "nowhere does not exist; expected the four"),
        (["cifar10", "--from=nowhere", "--to=b"], "expected cifar-10-batches-bin, or what holds"),
        (["imagenet", "--from=nowhere", "--to=b"], "expected <split>/<class>/*.JPEG in it"),
        (["folder", "--from=empty", "--to=b"], "empty holds no <split>/<class> folders; expected"),
        (["folder", "--from=flat", "--to=b"], "flat holds no <split>/<class> folders; expected"),
        (["folder", "--from=file", "--to=b"], "file is a file, not a folder; expected <split>"),
        (["mnist", "--from=file", "--to=b"], "file is a file, not a folder; expected the four"),
        (["cifar10", "--from=file", "--to=b"], "file is a file, not a folder; expected cifar"),
        (["folder", "--from=ok", "--to=file"], "file is a file, not a folder; choose another"),
        (["folder", "--from=ok", "--to=taken"], "taken/ok is a file, not a folder; choose"),
        (["folder", "--from=ok", "--to=b", "--name=My-Set"], "--name must be lower-case letters"),
        (["mnist", "--from=mnist", "--to=b"], "mnist must have 60,000 examples in train, got 12"),
        (["cifar10", "--from=.", "--to=b"], "cifar10 must have 50,000 examples in train, got 15"),
        (["imagenet", "--from=ok", "--to=b"], "imagenet2012 must have 1,000 classes, got 1"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_two(
    arguments, expected, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    for name in ("file", "taken/ok"):
        (tmp_path / name).touch()
    write_folder(tmp_path / "flat", {"": {"train": 1}})
    write_folder(tmp_path / "ok", {"train": {"a": 1}, "val": {"a": 1}})
    write_mnist(tmp_path / "mnist")
    write_cifar10(tmp_path)
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert err.startswith("aninfonce_jax: ")
    assert err.count("\n") == 1
    assert out == ""
    assert not (tmp_path / "b").exists()


def test_help_explains_itself(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert "--from" in out
    assert "python -m aninfonce_jax.prepare cifar10 --from=downloads --to=tfds" in out


def test_a_folder_from_the_command_line(tmp_path, capsys):
    write_folder(tmp_path / "My Birds", {"train": {"ant": 3, "bee": 2}, "val": {"bee": 2}})
    command = ["folder", f"--from={tmp_path / 'My Birds'}", f"--to={tmp_path / 'out'}"]
    assert run(*command) == 0
    out, err = capsys.readouterr()
    assert "written: " in out
    assert "(5 train, 2 validation)" in out
    assert "my_birds: 7 of 7 examples (100%)" in err
    assert len(tfds.data_source("my_birds", data_dir=tmp_path / "out", split="train")) == 5
    assert run(*command, "--progress=off") == 0
    out, err = capsys.readouterr()
    assert "already there: " in out
    assert err == ""


def test_files_that_are_not_official_are_said_to_be(tmp_path, capsys, monkeypatch):
    write_mnist(tmp_path / "mnist")
    counts = {"train": 12, "test": 5}
    target = dataclasses.replace(recipes._TARGETS["mnist"], counts=counts)
    monkeypatch.setitem(recipes._TARGETS, "mnist", target)
    assert run("mnist", f"--from={tmp_path / 'mnist'}", f"--to={tmp_path}", "--progress=off") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line, split in zip(lines, ("train", "t10k"), strict=True):
        assert line.startswith("aninfonce_jax: warning: ")
        assert f"{split}-images-idx3-ubyte.gz (and 1 more) is not the official file" in line


def test_bad_images_are_listed_when_they_are_left_out(tmp_path, capsys):
    write_folder(tmp_path / "ants", {"train": {"a": 3}})
    (tmp_path / "ants" / "train" / "a" / "1.JPEG").write_bytes(b"nothing")
    command = ["folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path}", "--name=bad_ants"]
    assert run(*command) == 2
    assert "train/a/1.JPEG: not a readable image" in capsys.readouterr().err
    assert run(*command, "--skip_bad") == 0
    out = capsys.readouterr().out
    assert "left out train/a/1.JPEG: not a readable image" in out
    assert "(2 train)" in out


def test_what_can_not_be_opened_is_named_or_left_out(tmp_path, capsys):
    write_folder(tmp_path / "ants", {"train": {"a": 3}})
    images = tmp_path / "ants" / "train" / "a"
    (images / "link.JPEG").symlink_to("nowhere")
    (images / "folder.JPEG").mkdir()
    command = ["folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path}", "--name=some_ants"]
    assert run(*command) == 2
    err = capsys.readouterr().err
    assert "; fetch it again, remove it, or leave such images out with --skip_bad" in err
    assert err.count("\n") == 1
    for state in ("written", "already there"):
        assert run(*command, "--skip_bad") == 0
        out = capsys.readouterr().out
        assert f"left out [Errno 2] No such file or directory: '{images}/link.JPEG'" in out
        assert f"left out {images}/folder.JPEG must be a file, got a folder" in out
        assert f"{state}: " in out
        assert "(3 train)" in out


def test_images_that_came_later_are_not_passed_over(tmp_path, capsys):
    write_folder(tmp_path / "ants", {"train": {"a": 8}})
    (tmp_path / "ants" / "train" / "a" / "bad.JPEG").touch()
    command = ["folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path / 'to'}", "--skip_bad"]
    assert run(*command) == 0
    assert run(*command) == 0
    write_folder(tmp_path / "ants", {"train": {"b": 2}})
    capsys.readouterr()
    assert run(*command) == 2
    assert capsys.readouterr().err == (
        f"aninfonce_jax: {tmp_path / 'to' / 'ants' / '1.0.0'} is there already, with train 8 and 1 "
        "left out; expected train 11: choose another --to, or remove it\n"
    )


def test_a_disk_that_fails_is_an_error_and_not_a_traceback(tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_folder(tmp_path / "ants", {"train": {"a": 1}})
    monkeypatch.setattr(prepare_lib, "prepare", full)
    assert run("folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path}") == 1
    assert "No space left on device; the same command goes on" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    write_folder(tmp_path / "ants", {"train": {"a": 1}})
    monkeypatch.setattr(prepare_lib, "prepare", interrupted)
    assert run("folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path}") == 75
    assert capsys.readouterr().err == "aninfonce_jax: stopped; the same command goes on\n"


# The command, held up at one of the images.
_HELD_UP = """
import sys, time
from aninfonce_jax.data import shards
from aninfonce_jax.prepare import main

write = shards.ShardWriter._record
def hold_up(self, source, index):
    if index == 1:
        time.sleep(1_000)
    return write(self, source, index)
shards.ShardWriter._record = hold_up
sys.exit(main(sys.argv))
"""


def test_an_image_that_takes_too_much_memory_is_refused_until_more_is_allowed(tmp_path, capsys):
    write_folder(tmp_path / "ants", {"train": {"a": 2}})
    large = encode(random_image(800, 900), "WEBP", method=0)
    (tmp_path / "ants" / "train" / "a" / "large.webp").write_bytes(large)
    arguments = ["folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path / 'out'}"]
    assert run(*arguments, "--decode_mib=4") == 2
    err = capsys.readouterr().err
    assert "a/large.webp: decoding 900 x 800 pixels of WEBP takes up to " in err
    assert "more than 4; resize the file, or raise decode_mib; fetch it again" in err
    assert err.count("\n") == 1
    assert run(*arguments) == 0
    assert len(tfds.data_source("ants", data_dir=tmp_path / "out", split="train")) == 3


def test_a_killed_preparation_goes_on(tmp_path):
    write_folder(tmp_path / "ants", {"train": {"a": 300}}, size=4)
    arguments = ["folder", "--threads=1"]
    arguments += [f"--from={tmp_path / 'ants'}", f"--to={tmp_path / 'out'}"]
    command = [sys.executable, "-c", _HELD_UP, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    work = tmp_path / "out" / "ants" / "1.0.0.incomplete"
    deadline = time.monotonic() + 240
    while not list(work.glob("*.partial")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -9
    assert [path.name for path in work.parent.iterdir()] == [work.name]
    assert run(*arguments) == 0
    assert len(tfds.data_source("ants", data_dir=tmp_path / "out", split="train")) == 300


def test_a_scheduler_s_notice_ends_a_preparation_in_a_line(tmp_path, capsys, monkeypatch):
    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    write_folder(tmp_path / "ants", {"train": {"a": 1}})
    monkeypatch.setattr(prepare_lib, "prepare", terminated)
    before = signal.getsignal(signal.SIGTERM)
    assert run("folder", f"--from={tmp_path / 'ants'}", f"--to={tmp_path}") == 75
    assert capsys.readouterr().err == "aninfonce_jax: stopped; the same command goes on\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_plain_lines_come_at_intervals_with_a_pace():
    now = iter(range(0, 1000, 4))
    stream = io.StringIO()
    with _Bar("x", "auto", stream, clock=lambda: float(next(now)), interval=10) as bar:
        for done in range(0, 101, 20):
            bar.update(done, 100)
    assert stream.getvalue() == (
        "x: 40 of 100 examples (40%), 5/s\nx: 100 of 100 examples (100%), 5/s\n"
    )


def test_a_terminal_gets_a_bar():
    stream = io.StringIO()
    stream.isatty = lambda: True
    with _Bar("my_birds", "auto", stream) as bar:
        bar.update(3, 7)
        bar.update(7, 7)
    assert "my_birds" in stream.getvalue()
    assert "7/7" in stream.getvalue()
