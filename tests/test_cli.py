import os
import subprocess
import sys

import pytest

from aninfonce_jax.cli import complain, printable, warn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, é Ω 日本 蟻, 100 %", "plain, é Ω 日本 蟻, 100 %"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("a\u2028b", r"a\u2028b"),
        (b"caf\xe9\xff".decode(errors="surrogateescape"), r"caf\xe9\xff"),
        ("\ud83d", r"\ud83d"),
        (ValueError("a\nb"), r"a\nb"),
    ],
)
def test_what_comes_from_outside_is_shown_on_one_safe_line(text, expected):
    assert printable(text) == expected
    assert printable(text).encode()
    assert printable(printable(text)) == expected


def test_lines_on_stderr(capsys):
    assert complain("no\nsuch \x1b[2Jfile", 2) == 2
    warn("odd\rfile")
    assert capsys.readouterr().err == (
        "aninfonce_jax: no\\nsuch \\x1b[2Jfile\naninfonce_jax: warning: odd\\rfile\n"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("module", ["main", "prepare"])
def test_a_full_disk_behind_the_output_is_one_line(module):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", f"aninfonce_jax.{module}", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "aninfonce_jax: the output can't be written: No space left on device\n"
