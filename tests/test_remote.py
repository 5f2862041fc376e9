"""Remote paths: what may be one, what becomes of its slashes, and what is said when it fails."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from aninfonce_jax import main as main_lib
from aninfonce_jax import remote
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_USAGE
from aninfonce_jax.remote import PathError, RemoteError, RemotePath, locate


@pytest.mark.usefixtures("fake_store")
class TestLocate:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("gs://bucket/run", "gs://bucket/run"),
            ("gs://bucket/run/", "gs://bucket/run"),
            ("gs://bucket//a//b", "gs://bucket/a/b"),
            ("gs://bucket", "gs://bucket"),
            ("gs://my_bucket.example-1/ä/b c", "gs://my_bucket.example-1/ä/b c"),
        ],
    )
    def test_a_remote_path_keeps_its_slashes(self, text, shown):
        path = locate(text)
        assert isinstance(path, RemotePath)
        assert str(path) == shown
        assert locate(path) is path
        assert str(path / "x" / "y.txt") == f"{shown}/x/y.txt"

    @pytest.mark.parametrize("text", ["runs/a", "/tmp/a", "a:/b", "runs/x://y", ".", "gs", "~/gs:"])
    def test_what_has_no_scheme_is_a_folder_of_this_machine(self, text):
        assert locate(text) == Path(text)
        assert locate(Path(text)) == Path(text)

    @pytest.mark.parametrize(
        "text",
        [
            *("s3://b/x", "s3a://b/x", "hdfs://host/x", "http://host/x", "https://host/x"),
            *("az://c/x", "abfs://c/x", "memory://x", "S3://b/x", "gcs://bucket/x", "s3:/b/x"),
        ],
    )
    def test_other_schemes_are_to_be_mounted(self, text):
        with pytest.raises(PathError, match="only gs:// can be used; mount this one as a folder"):
            locate(text)

    @pytest.mark.parametrize(
        "where", ["gs:/bucket/run", "GS://bucket/run", Path("gs://bucket/run")]
    )
    def test_a_slash_that_was_lost_is_noticed(self, where):
        with pytest.raises(PathError, match="write gs://bucket/run, as text"):
            locate(where)

    @pytest.mark.parametrize("text", ["gs://", "gs:///x", "gs://B/x", "gs://b/x", "gs://-ab-/x"])
    def test_what_is_no_bucket(self, text):
        with pytest.raises(PathError, match="expected gs://BUCKET/FOLDER"):
            locate(text)

    @pytest.mark.parametrize("text", ["gs://bucket/a*", "gs://bucket/a?", "gs://bucket/[a]"])
    def test_what_a_library_would_take_for_a_pattern(self, text):
        with pytest.raises(PathError, match=r"can't have . in it|can't have . . in it"):
            locate(text)

    def test_parents_are_not_known_to_a_store(self):
        with pytest.raises(PathError, match=r"knows no '\.\.'"):
            locate("gs://bucket/a/../b")

    def test_it_is_no_path_of_this_machine(self):
        with pytest.raises(TypeError):
            os.fspath(locate("gs://bucket/run"))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # as if it were not installed
    # Where it is, a test before this one may have had it registered.
    registry = importlib.import_module("fsspec.registry")
    for name in ("gs", "gcs"):
        monkeypatch.delitem(registry._registry, name, raising=False)
    with pytest.raises(PathError, match=r"pip install 'aninfonce-jax\[gcs\]'"):
        locate("gs://bucket/run")


def test_names(fake_store):
    path = locate("gs://bucket/a/b.txt")
    assert (path.name, path.stem) == ("b.txt", "b")
    assert str(path.parent) == "gs://bucket/a"
    assert [str(parent) for parent in path.parents] == ["gs://bucket/a", "gs://bucket"]
    assert str(path.parents[-1].parent) == "gs://bucket"
    assert str(path.with_name("c")) == "gs://bucket/a/c"
    assert str(path.with_suffix(".csv")) == "gs://bucket/a/b.csv"
    assert path.absolute() is path.resolve() is path
    assert len({path, locate("gs://bucket/a//b.txt")}) == 1


def test_objects_are_written_read_listed_and_removed(fake_store):
    folder = locate("gs://bucket/run")
    assert not folder.exists()
    assert list(folder.iterdir()) == folder.files_below() == []
    (folder / "a").write_bytes(b"1")
    (folder / "b" / "c").write_bytes(b"22")
    assert folder.is_dir()
    assert not folder.is_file()
    assert (folder / "a").is_file()
    assert [path.name for path in folder.iterdir()] == ["a", "b"]
    assert [str(path.relative_to(folder)) for path in folder.files_below()] == ["a", "b/c"]
    assert ((folder / "b" / "c").size(), (folder / "b" / "c").read_bytes()) == (2, b"22")
    folder.copy_below(locate("gs://bucket/copy"))
    folder.rmtree()
    assert sorted(fake_store.objects) == ["bucket/copy/a", "bucket/copy/b/c"]
    with pytest.raises(FileNotFoundError) as error:
        (folder / "a").read_bytes()
    assert error.value.filename == "gs://bucket/run/a"


def test_a_bucket_that_is_missing(fake_store):
    with pytest.raises(RemoteError, match="gs://other/x: no bucket other, or not for these"):
        locate("gs://other/x").write_bytes(b"")


class DefaultCredentialsError(Exception):
    """Called like the one of google.auth."""


class HttpError(Exception):
    """Called like the one of gcsfs."""

    code = 403


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DefaultCredentialsError("none"), "no valid credentials (none): gcloud auth"),
        (HttpError("Insufficient\nrights, 403"), "permission denied (Insufficient rights, 403)"),
        (OSError("Forbidden: gs://bucket"), "permission denied (Forbidden"),
        (ConnectionRefusedError(111, "refused"), "no connection ([Errno 111] refused)"),
        (TimeoutError(), "no connection (TimeoutError)"),
        (ValueError("UNAVAILABLE: curl"), "no connection (UNAVAILABLE: curl)"),
        (ValueError("ABORTED: CURL error 6"), "no connection (ABORTED: CURL error 6)"),
        (RuntimeError("odd " * 100), "RuntimeError: odd odd"),
    ],
)
def test_an_error_is_one_short_line(fake_store, error, line):
    fake_store.error = error
    with pytest.raises(RemoteError) as raised:
        locate("gs://bucket/run").exists()
    assert str(raised.value).startswith(f"gs://bucket/run: {line}")
    assert len(f"{raised.value}".splitlines()) == 1
    assert len(str(raised.value)) < 300
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("mode", ["train", "eval", "report", "preview"])
def test_the_command_refuses_what_is_to_be_mounted(mode, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main_lib.main(["x", f"--mode={mode}", "--workdir=s3://bucket/run"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert said.startswith("aninfonce_jax: work directory s3://bucket/run: of remote folders only")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["eval", "report"])
def test_a_network_that_is_away_is_told_in_a_line(fake_store, mode, capsys):
    fake_store.error = ConnectionError("Name or service not known")
    code = main_lib.main(["x", f"--mode={mode}", "--workdir=gs://bucket/run"])
    assert code in (EXIT_FAILED, EXIT_USAGE)
    said = capsys.readouterr().err
    assert "gs://bucket/run can't be read: no connection (Name or service not known)" in said
    assert said.count("\n") == 1


def test_a_remote_run_gives_the_page_that_a_local_one_gives(fake_store, known_run, tmp_path):
    local = shutil.copytree(known_run, tmp_path / "run")
    for path in local.rglob("*"):
        if path.is_file() and "checkpoints" not in path.parts:
            name = f"bucket/here/run/{path.relative_to(local)}"
            fake_store.objects[name] = path.read_bytes()
    assert main_lib.main(["x", "--mode=report", f"--workdir={local}"]) == 0
    assert main_lib.main(["x", "--mode=report", "--workdir=gs://bucket/here"]) == 0
    pages = fake_store.objects["bucket/here/report.html"], (local / "report.html").read_bytes()
    assert pages[0] == pages[1]
    assert any(name.startswith("bucket/here/figures/") for name in fake_store.objects)
    assert workdir_lib.find_runs([locate("gs://bucket/here")]) == [locate("gs://bucket/here/run")]


def test_the_store_is_not_asked_from_memory():
    """What TensorStore has written must be in the next list."""
    pytest.importorskip("gcsfs")
    assert remote._store().dircache.use_listings_cache is False
