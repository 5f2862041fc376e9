"""Image folders that hold anything but sound images: a line for each, and always an end."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_images import refused_files
from image_files import encode, random_image, write_folder

from aninfonce_jax.cli import printable
from aninfonce_jax.data.datasets import ImageFolder
from aninfonce_jax.data.headers import MAX_FILE_BYTES
from aninfonce_jax.data.source import DataError
from aninfonce_jax.prepare import main

ROOT = Path(__file__).resolve().parents[2]
SOUND = 30


def make_socket(path):
    # The name of a socket may have 108 characters, which a test's folder alone may have.
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def make_huge(path):
    with open(path, "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


def make_circle(path):
    path.symlink_to(path.name)


# Name of the file -> what makes it, and what is to be said of it.
BAD_FILES = {
    "pipe.jpg": (os.mkfifo, "must be a file, got a named pipe"),
    "socket.jpg": (make_socket, "must be a file, got a socket"),
    "zero.jpg": (lambda path: path.symlink_to("/dev/zero"), "must be a file, got a device"),
    "folder.jpg": (Path.mkdir, "must be a file, got a folder"),
    "nowhere.jpg": (lambda path: path.symlink_to("nothing"), "No such file or directory"),
    "circle.jpg": (make_circle, "Too many levels of symbolic links"),
    "empty.jpg": (Path.touch, "the file is empty"),
    "huge.jpg": (make_huge, f"may have {MAX_FILE_BYTES:,} bytes"),
    "scan.tif": (
        lambda path: path.write_bytes(encode(random_image(9, 9), "TIFF")),
        "TIFF is not read, expected JPEG, PNG, WebP or BMP; convert the file",
    ),
    "moving.gif": (
        lambda path: path.write_bytes(encode(random_image(9, 9), "GIF")),
        "GIF is not read",
    ),
    "postscript.jpg": (
        lambda path: path.write_bytes(refused_files()["EPS"][0]),
        "EPS is not read",
    ),
    "text.png": (lambda path: path.write_bytes(b"\x1b[31mred"), "in no known format"),
    "\x1b[31mred\x1b]0;title\x07\n.jpg": (Path.touch, r"\x1b[31mred\x1b]0;title\x07\n.jpg: "),
    "\u202egpj.exe.jpg": (Path.touch, r"\u202egpj.exe.jpg: "),
    os.fsdecode(b"caf\xe9.jpg"): (Path.touch, r"caf\xe9.jpg: "),
}
# These are none of the images of a class, whatever they hold.
PASSED_OVER = (".DS_Store", "._0.jpg", ".hidden.jpg", "Thumbs.db", "desktop.ini", "notes.txt")


def is_printable(text):
    return all(line == printable(line) for line in text.split("\n"))


@pytest.fixture
def images(tmp_path):
    write_folder(tmp_path / "images", {"train": {"a": SOUND, "b": 2}}, size=8)
    return tmp_path / "images"


def prepare(images, *flags):
    to = images.parent / "to"
    return main(["prepare", "folder", f"--from={images}", f"--to={to}", "--progress=off", *flags])


@pytest.mark.parametrize("name", BAD_FILES, ids=ascii)
def test_a_file_that_is_no_image_is_named(images, name, capsys):
    make, message = BAD_FILES[name]
    make(images / "train" / "a" / name)
    assert prepare(images) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.startswith("aninfonce_jax: ")
    assert err.count("\n") == 1
    assert is_printable(err)
    assert out == ""


def test_the_command_ends_and_lists_all_that_it_leaves_out(images):
    for name, (make, _) in BAD_FILES.items():
        make(images / "train" / "a" / name)
    for name in PASSED_OVER:
        (images / "train" / "a" / name).write_bytes(b"junk")
    os.rename(images / "train" / "b", os.fsencode(images / "train") + b"/b\xe9\n\x1b[2J")
    command = [sys.executable, "-m", "aninfonce_jax.prepare", "folder", "--skip_bad"]
    command += [f"--from={images}", f"--to={images.parent / 'to'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=200)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, err
    assert is_printable(out)
    assert is_printable(err)
    left_out = [line for line in out.splitlines() if line.startswith("left out ")]
    assert len(left_out) == len(BAD_FILES)
    for _, message in BAD_FILES.values():
        assert any(message in line for line in left_out), message
    assert f"({SOUND + 2} train)" in out


def test_classes_of_any_name(images):
    odd = os.fsencode(images / "train") + b"/caf\xe9\n\x1b[2J"
    os.rename(images / "train" / "b", odd)
    source = ImageFolder(images, "train")
    assert source.class_names == ("a", r"caf\xe9\n\x1b[2J")
    assert source[SOUND].id == r"train/caf\xe9\n\x1b[2J/0.JPEG"
    os.rename(images / "train" / "a", images / "train" / r"caf\xe9\n\x1b[2J")
    with pytest.raises(DataError, match="has 2 classes that read caf"):
        ImageFolder(images, "train")


def test_links_between_folders(images):
    (images / "train" / "c").symlink_to("a")
    assert len(ImageFolder(images, "train")) == 2 * SOUND + 2
    (images / "train" / "circle").symlink_to("circle")
    with pytest.raises(DataError, match=r"circle can't be followed: .*; remove it"):
        ImageFolder(images, "train")


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b"])
def test_folders_that_can_not_be(tmp_path, name):
    with pytest.raises(DataError, match=r"can't be opened: .*; expected <split>/<class>"):
        ImageFolder(tmp_path / name, "train")


def test_a_target_whose_name_is_no_text(images, capsys):
    to = os.fsdecode(b"caf\xe9")
    assert prepare(images, f"--to={images.parent / to}") == 2
    err = capsys.readouterr().err
    assert r"caf\xe9/images/1.0.0.incomplete must be a name in UTF-8; choose another" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"fingerprint": 1}', b'{"shards": {"a": 5}}']
)
def test_a_damaged_journal_is_begun_anew(images, content, capsys):
    work = images.parent / "to" / "images" / "1.0.0.incomplete"
    work.mkdir(parents=True)
    (work / "journal.json").write_bytes(content)
    (work / "left_behind.partial").touch()
    assert prepare(images) == 0
    assert f"({SOUND + 2} train)" in capsys.readouterr().out
    assert not list((work.with_name("1.0.0")).glob("*.partial"))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"train": 5}'])
def test_a_damaged_list_of_what_was_left_out(images, content, capsys):
    assert prepare(images) == 0
    (images.parent / "to" / "images" / "1.0.0" / "skipped.json").write_bytes(content)
    capsys.readouterr()
    assert prepare(images) == 2
    err = capsys.readouterr().err
    assert "skipped.json can't be read: " in err
    assert err.count("\n") == 1
