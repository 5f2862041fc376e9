import pytest
from rich.cells import cell_len

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import Config
from aninfonce_jax.console import print_config, print_readouts, print_scores, print_times
from aninfonce_jax.report.table import table_rows
from aninfonce_jax.scores import registry

SGD = {"kind": "sgd", "momentum": 0.5}


def changed(**values):
    return config_lib.from_dict(config_lib.to_dict(Config()) | values)


def test_only_what_differs_from_the_defaults_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    config = changed(seed=3, train={"steps": 20000}, source={"dim": 4}, encoder={"widths": (8,)})
    print_config({"aninfonce": config})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:-1]] == [
        ["seed", "3"],
        ["encoder.widths", "(8,)"],
        ["source.dim", "4"],
        ["train.steps", "20000"],
    ]
    assert lines[-1] == "All other values are the defaults; config.json holds every one."


def test_the_defaults_are_not_printed(capsys):
    print_config({"aninfonce": Config()})
    out = capsys.readouterr().out
    assert out.startswith("config: the defaults\n")
    assert out.count("\n") == 2


def test_another_kind_is_printed_with_what_differs_from_its_own_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    config = changed(
        source={"kind": "images", "folder": "x"}, encoder={"kind": "resnet18"}, optimizer=SGD
    )
    print_config({"aninfonce": config})
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]] == [
        ["encoder.kind", "resnet18"],
        ["optimizer.kind", "sgd"],
        ["optimizer.momentum", "0.5"],
        ["source.folder", "x"],
        ["source.kind", "images"],
    ]


def test_a_comparison_is_printed_once(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    values = {"compare": ("infonce", "aninfonce"), "seed": 3, "objective": {"temperature": 0.5}}
    print_config(config_lib.runs_of(values))
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        " compare                ('infonce', 'aninfonce') ",
        " seed                   3                        ",
        " objective.temperature  0.5                      ",
    ]


@pytest.mark.parametrize("name", ["[/nope]", "[bold]x[/bold]", ":smile:", "[link=http://x]y"])
def test_values_are_no_markup(name, capsys):
    print_config({"aninfonce": changed(name=name)})
    print_scores({name: {"step": 3}})
    assert capsys.readouterr().out.count(name) == 2


def test_a_long_value_is_printed_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_config({"aninfonce": changed(name="x" * 100)})
    assert capsys.readouterr().out.count("x") == 100


def test_escapes_do_not_reach_the_terminal(capsys):
    print_scores({"\x1b[31mred": {"step": 3}})
    assert "\\x1b[31mred" in capsys.readouterr().out


def test_scores_of_a_process_fit_into_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    scores = {"step": 3000, "r2": 0.9991, "r2_content": 0.9995, "r2_style": 0.9988}
    scores |= {"mcc_pearson": 0.7712, "concentration_error": 0.016, "loss": 3.6821}
    scores |= {"loss_floor": 3.6761}
    keys = ("r2", "r2_content", "r2_style", "mcc_pearson")
    found = {key: [scores[key] - 2e-4, scores[key] + 1e-4] for key in keys}
    found |= {"loss": [3.67, 3.69], "loss_floor": [3.62, 3.7]}
    results = {
        "aninfonce_no_l2": scores | {"intervals": found},
        "infonce": {"step": 1500, "r2": 0.5, "intervals": {"r2": [0.488, 0.5116]}},
    }
    print_scores(results)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    numbers = ["3000", "0.9991", "0.9995", "0.9988", "0.7712", "1.6%", "3.682", "3.676"]
    assert [line.split() for line in lines[-5:-1]] == [
        ["aninfonce_no_l2", *numbers],
        [*["±0.0002"] * 4, "±0.013", "±0.057"],
        ["infonce", "1500", "0.500", *"––––––"],
        ["±0.012"],
    ]
    assert lines[-1].startswith("±: 95 % interval")


def test_readouts_are_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    rows = table_rows(
        "AnInfoNCE",
        {
            "readouts": {"backbone": {"classes": 0.465}},
            "intervals": {"readouts": {"backbone": {"classes": [0.398, 0.534]}}},
        },
    )
    print_readouts(rows)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[2][:3] == ["AnInfoNCE", "backbone", "46.5"]
    assert lines[3] == ["±6.9"]


def test_scores_leave_out_what_no_run_has(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_scores({"a": {"step": 3, "r2": 0.98765}, "b": {"step": 4, "r2": None, "loss": 1.0}})
    text = capsys.readouterr().out
    assert "0.988" in text
    assert "–" in text
    assert "1.000" in text
    assert "interval" not in text
    assert "MCC" not in text


def test_where_the_time_went_fits_into_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    phases = dict(zip(registry.PHASES, (600.0, 50, 30, 20, 10, 5, 200, 85), strict=True))
    seconds = {registry.phase_key(phase): own for phase, own in phases.items()}
    told = seconds | {registry.WALL_SECONDS: 1000.0}
    print_times({"aninfonce_no_l2": told, "infonce": {"step": 3}})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert [line.split() for line in lines[1:]] == [
        ["run", "time", *(name.console for name in registry.PHASE_NAMES.values())],
        [
            "aninfonce_no_l2",
            *["16", "min", "40", "s"],
            "60%",
            "5%",
            "3%",
            "2%",
            "1%",
            "0%",
            "20%",
            "8%",
        ],
    ]


def test_runs_that_do_not_tell_their_time_print_none(capsys):
    print_times({"a": {"step": 3}})
    assert capsys.readouterr().out == ""
