"""Config files that are missing, broken or hostile: one line each; a bug of ours, a traceback."""

import os

import pytest

from aninfonce_jax.config.file import load_config, split_variant
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.main import main

HOSTILE = {
    "bad syntax": ("def get_config(:", "failed to load: SyntaxError"),
    "no function": ("x = 1", "it must define get_config()"),
    "no callable": ("get_config = 3", "it must define get_config()"),
    "unknown key": ("def get_config(): return {'nmae': 3}", "did you mean 'name'?"),
    "exits well": ("import sys; sys.exit(0)", "calls sys.exit(0); it must return a config"),
    "exits late": ("def get_config(): raise SystemExit('no')", "calls sys.exit('no')"),
    "base exception": ("raise GeneratorExit('x')", "failed to load: GeneratorExit: x"),
    "own exception": ("class E(BaseException): pass\nraise E", "failed to load: E: no message"),
    "many lines": ("raise ValueError('a\\nb\\nc')", "failed to load: ValueError: a"),
    "long message": ("raise ValueError('x' * 10**6)", "failed to load: ValueError: xxx"),
    "recursion": ("def get_config(): return get_config()", "failed to load: RecursionError"),
    "needs an argument": ("def get_config(a): return {}", "get_config(a) takes a variant: FILE:"),
    "returns nothing": ("def get_config(): pass", "must return a ConfigDict, got None"),
    "returns a huge list": ("def get_config(): return [0] * 10**6", "must return a ConfigDict"),
    "returns a huge dict": (
        "def get_config(): return {str(i): i for i in range(10**5)}",
        "unknown config key '0'",
    ),
    "returns a cycle": (
        "d = {}\nd['source'] = d\ndef get_config(): return d",
        "key 'source.source'",
    ),
    "cycle of ConfigDicts": (
        "from ml_collections import ConfigDict\nd = ConfigDict()\nd.source = ConfigDict()\n"
        "d.source.source = d\ndef get_config(): return d",
        "key 'source.source'",
    ),
    "keys are no text": ("def get_config(): return {3: 4, None: 5}", "unknown config key '3'"),
    "bad repr": (
        "class A:\n  def __repr__(self): raise ValueError\ndef get_config(): return {'name': A()}",
        "a value of type A that can't be printed",
    ),
    "an array": (
        "import numpy as np\ndef get_config(): return {'source': {'space': np.zeros(3)}}",
        "config.source.space must be one of",
    ),
    "escape codes": ("raise ValueError('\\x1b[31mred')", "ValueError: \\x1b[31mred"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_broken_config_file(case, tmp_path, capsys):
    source, expected = HOSTILE[case]
    path = tmp_path / "broken.py"
    path.write_text(source)
    assert main(["main", f"--config={path}"]) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert err.startswith("aninfonce_jax: ")
    assert err.count("\n") == 1
    assert len(err) < 600
    assert out == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x00\x01\x02\xff", "failed to load: "),
        ("# coding: utf-8\nx = 'é'".encode("latin-1"), "failed to load: "),
        (b"#" * (2**20 + 1), "has 1,048,577 bytes; a config has at most 1,048,576"),
    ],
)
def test_a_file_that_is_no_text(content, expected, tmp_path):
    path = tmp_path / "config.py"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        load_config(str(path))


def test_what_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="is a folder; expected FILE"):
        load_config(str(tmp_path))
    fifo = tmp_path / "fifo.py"
    os.mkfifo(fifo)
    with pytest.raises(ConfigError, match="is no regular file"):
        load_config(str(fifo))
    for name in ("", ":", ":x", "\0", "x" * 5000, "a/" * 3000, "nowhere.py", "nowhere.py:x"):
        with pytest.raises(ConfigError, match=r"does not exist|is a folder") as caught:
            load_config(name)
        assert len(str(caught.value)) < 300


def test_a_stop_while_a_file_loads_is_a_stop(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_config(str(path))


def test_a_bug_of_ours_comes_with_its_traceback(tmp_path, monkeypatch):
    path = tmp_path / "config.py"
    path.write_text(
        "from aninfonce_jax.config import default_config\ndef get_config(): return default_config()"
    )
    load_config(str(path))

    def broken(config):
        return config.no_such_field

    # Called by `default_config`, so that a frame of the package is the last one but this.
    monkeypatch.setattr("aninfonce_jax.config.to_dict", broken)
    with pytest.raises(AttributeError, match="no_such_field"):
        load_config(str(path))


@pytest.mark.parametrize(
    "call", ["default_config(1)", "default_config(colour=1)", "default_config(source=1)"]
)
def test_a_wrong_call_of_ours_is_a_line(call, tmp_path):
    path = tmp_path / "config.py"
    path.write_text(
        f"from aninfonce_jax.config import default_config\ndef get_config(): return {call}"
    )
    with pytest.raises(ConfigError, match=r"config\.py"):
        load_config(str(path))


def test_a_wrong_key_of_a_default_is_a_line(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(
        "from aninfonce_jax.config import default_config\n"
        "def get_config():\n  config = default_config()\n  return config.train.stpes\n"
    )
    with pytest.raises(ConfigError, match=r"failed to load: AttributeError: .*stpes"):
        load_config(str(path))


def test_a_variant_that_a_file_does_not_take(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("def get_config(): return {}")
    assert load_config(str(path)) == {}
    with pytest.raises(ConfigError, match=r"get_config\(\) takes no variant"):
        load_config(f"{path}:linear")


def test_a_file_may_print(tmp_path, capsys):
    path = tmp_path / "config.py"
    path.write_text("print('[/nope]')\ndef get_config(): return {'seed': 3}")
    assert load_config(str(path)) == {"seed": 3}
    assert capsys.readouterr().out == "[/nope]\n"


def test_a_colon_may_belong_to_a_folder(tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "config.py").write_text("def get_config(x='y'): return {'name': x}")
    assert load_config(f"{folder}/config.py") == {"name": "y"}
    assert load_config(f"{folder}/config.py:z") == {"name": "z"}
    assert split_variant("configs/synthetic.py:linear") == ("configs/synthetic.py", "linear")
    assert split_variant("configs/synthetic.py") == ("configs/synthetic.py", None)
