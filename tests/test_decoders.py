"""The decoder of a VAE as the mixing of other runs: found, checked, or trained first."""

import contextlib
import json
import shutil
import threading

import numpy as np
import pytest
from small_configs import SMALL_DECODED, SMALL_VAE, as_flags

from aninfonce_jax import build, decoders, main, workdir
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.memory import estimate


def complaint(function, *arguments):
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_a_trained_vae_is_found_and_needs_nothing(decoded_config):
    config = decoded_config()
    assert decoders.is_trained(config.source)
    assert decoders.needed_run(config) is None
    assert decoders.vae_of(config.source).objective.kind == "elbo"
    build.check_data(config)


def test_a_process_needs_no_vae(small_config):
    assert decoders.needed_run(small_config()) is None


def test_a_decoder_of_another_shape(decoded_config, vae_run):
    text = complaint(build.check_data, decoded_config(source__dim=4))
    assert text == (
        f"source.decoder={vae_run} makes images of 8 x 8 x 1 from 3 latents, and source.dim, "
        "source.image_size and source.grey ask for images of 8 x 8 x 1 from 4 latents; change "
        "these, or name another VAE"
    )
    assert "16 x 16 x 1 from 3" in complaint(
        build.check_data, decoded_config(source__image_size=16)
    )
    assert "8 x 8 x 3 from 3" in complaint(build.check_data, decoded_config(source__grey=False))


def test_a_run_that_has_no_decoder(decoded_config, synthetic_runs):
    folder = synthetic_runs[0]
    config = decoded_config(source__decoder=str(folder))
    assert complaint(build.check_data, config) == (
        f"source.decoder={folder} is a run with objective.kind='aninfonce', which has no "
        "decoder; name a VAE, whose objective.kind is 'elbo'"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"decoder_config": "none.py"},
            "source.decoder_config=none.py: config file 'none.py' does",
        ),
        (
            {"decoder_config": "quickstart"},
            "source.decoder_config=quickstart is a run with objective.kind='aninfonce', which has",
        ),
        (
            {"decoder_config": "mnist_vae:cubic"},
            "source.decoder_config=mnist_vae:cubic: mnist_vae: unknown variant 'cubic'",
        ),
        ({"decoder": __file__}, f"source.decoder={__file__}: work directory {__file__} can't be"),
    ],
)
def test_what_can_not_be_a_decoder_is_said_by_its_field(changes, message):
    section = kinds.DecoderConfig(**{"decoder": "no vae", "folder": "mnist", **changes})
    assert complaint(decoders.vae_of, section).startswith(message)


def test_a_vae_that_is_not_there_is_asked_for_with_the_command_that_trains_it(
    decoded_config, tmp_path, mnist_folder
):
    config = decoded_config(
        source__decoder=str(tmp_path / "no vae"),
        source__dim=10,
        source__image_size=28,
        eval__samples=80,
    )
    needed = decoders.needed_run(config)
    # The shipped config, on the data of the run.
    assert (needed.config.encoder.dim, needed.config.source.folder) == (20, str(mnist_folder))
    assert needed.command == (
        f"python -m aninfonce_jax.main --config=mnist_vae:vae --config.source.folder={mnist_folder}"
    )
    assert complaint(build.build_source, config) == (
        f"source.decoder={tmp_path / 'no vae'} holds no VAE that is trained to its end; train it: "
        f"{needed.command} '--workdir={tmp_path / 'no vae'}'"
    )
    # One that would not fit is refused before it is trained.
    other = decoded_config(source__decoder=str(tmp_path / "no vae"))
    assert "source.decoder_config=mnist_vae:vae makes images of 28 x 28 x 1 from 10" in complaint(
        decoders.needed_run, other
    )


def test_a_damaged_folder_is_said_in_a_line(decoded_config, vae_run, tmp_path):
    folder = shutil.copytree(vae_run, tmp_path / "vae")
    config = decoded_config(source__decoder=str(folder))
    shutil.rmtree(folder / "checkpoints" / "4")
    assert not decoders.is_trained(config.source)
    assert "holds no VAE that is trained to its end" in complaint(build.build_source, config)
    (folder / "config.json").write_text("{")
    assert "not valid JSON" in complaint(build.check_data, config)
    shutil.rmtree(folder)
    folder.write_text("a file")
    assert "it is a file" in complaint(build.check_data, config)


def test_shapes_need_neither_images_nor_a_trained_decoder(decoded_config, tmp_path):
    config = decoded_config(
        source__folder=str(tmp_path / "nowhere"),
        source__decoder=str(tmp_path / "none"),
        source__dim=10,
        source__image_size=28,
        eval__samples=80,
    )
    experiment = build.build_shapes(config)
    assert experiment.source.example().shape == (2, 28, 28, 1)
    assert experiment.source.process.mixing(np.zeros((3, 10), np.float32)).shape == (3, 28, 28, 1)


def test_memory_is_counted_by_pixels_and_latents(decoded_config):
    small, large = (
        {part.what: part.bytes for parts in estimate(config, 1).values() for part in parts}
        for config in (decoded_config(), decoded_config(source__image_size=800))
    )
    assert large["batch"] > small["batch"]
    assert large["samples to evaluate with"] == 64 * (2 * 3 * 4 + 4 * 800**2 + 4 * 16)


# --- Trained first ---


@pytest.fixture
def command(tmp_path, mnist_folder):
    """Returns the arguments of a run whose VAE is not there."""
    values = {name: value for name, value in SMALL_VAE.items() if "." in name}
    (tmp_path / "vae.py").write_text(
        "from aninfonce_jax.config.overrides import resolve\n"
        "from aninfonce_jax.config import to_dict\n"
        f"VALUES = {values!r}\n"
        "def get_config():\n"
        "    runs = resolve({}, VALUES | {'source.folder': 'x'}).runs\n"
        "    return to_dict(runs['elbo'])\n"
    )
    settings = SMALL_DECODED | {
        "source.folder": mnist_folder,
        "source.decoder": tmp_path / "vae",
        "source.decoder_config": tmp_path / "vae.py",
    }
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in settings.items()
    }
    flags = [*as_flags(texts), "--config.compare=", "--progress=off"]
    return lambda name, *more: main.main(
        ["aninfonce", *flags, f"--workdir={tmp_path / name}", *more]
    )


@pytest.mark.usefixtures("undrawn_figures")
def test_a_missing_vae_is_trained_first_and_once(command, tmp_path, capsys):
    assert command("one") == 0
    assert f"its VAE is trained first, in {tmp_path / 'vae'}" in capsys.readouterr().out
    scores = json.loads((tmp_path / "one" / "eval.json").read_text())
    # By what is known: latents, classes of real images, and what is done to them.
    assert {"r2", "mcc_pearson", "concentration_error", "knn_accuracy"} <= scores.keys()
    assert set(scores["readouts"]["embedding"]) >= {"classes", "crop", "blur"}
    assert scores["samples"]
    assert 'figure id="samples"' in (tmp_path / "one" / "report.html").read_text()
    before = (tmp_path / "vae" / "eval.json").stat().st_mtime_ns
    assert command("two", "--config.objective.kind=infonce", "--config.train.steps=2") == 0
    assert "trained first" not in capsys.readouterr().out
    assert (tmp_path / "vae" / "eval.json").stat().st_mtime_ns == before
    # Another decoder is another run.
    shutil.copytree(tmp_path / "vae", tmp_path / "other")
    assert command("one", f"--config.source.decoder={tmp_path / 'other'}") == 2
    assert "holds a run with another config (source.decoder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_vae_that_another_process_trains_is_waited_for(command, tmp_path, vae_run, capsys):
    held, done = threading.Event(), threading.Event()

    def train_elsewhere():
        with workdir.hold(tmp_path / "vae"):
            held.set()
            done.wait()
            for path in vae_run.iterdir():
                if path.name not in ("lock", "report.lock"):
                    copy = shutil.copytree if path.is_dir() else shutil.copy
                    copy(path, tmp_path / "vae" / path.name)

    other = threading.Thread(target=train_elsewhere)
    other.start()
    held.wait()
    timer = threading.Timer(1.5, done.set)
    timer.start()
    try:
        assert command("run", "--config.train.steps=2") == 0
    finally:
        done.set()
        other.join()
    # It was taken as it came.
    saved = json.loads((tmp_path / "vae" / "config.json").read_text())
    assert saved == json.loads((vae_run / "config.json").read_text())
    assert "its VAE is trained first" in capsys.readouterr().out


@pytest.mark.slow
def test_a_vae_that_was_stopped_is_trained_on(command, tmp_path, vae_run):
    folder = shutil.copytree(vae_run, tmp_path / "vae")
    for name in ("4", "3"):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / "checkpoints" / name)
    assert command("run", "--config.train.steps=2") == 0
    assert (folder / "checkpoints" / "4").is_dir()
