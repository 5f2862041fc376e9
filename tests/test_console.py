from aninfonce_jax.config_schema import Config
from aninfonce_jax.console import print_config, print_scores


def test_every_field_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_config(Config())
    lines = capsys.readouterr().out.splitlines()
    assert any("train.batch_size" in line and "1000" in line for line in lines)
    assert any("dgp.concentration.high" in line and "25.0" in line for line in lines)


def test_scores_of_a_process_fit_into_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    scores = {"step": 3000, "r2": 0.9991, "r2_content": 0.9995, "r2_style": 0.9988}
    scores |= {"mcc_pearson": 0.7712, "concentration_error": 0.016, "loss": 3.6821}
    scores |= {"loss_floor": 3.6761}
    print_scores({"aninfonce_no_l2": scores, "infonce": {"step": 1500, "r2": 0.5}})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = ["3000", "0.9991", "0.9995", "0.9988", "0.7712", "1.6%", "3.6821", "3.6761"]
    assert lines[-2:] == [
        ["aninfonce_no_l2", *numbers],
        ["infonce", "1500", "0.5000", *"––––––"],
    ]


def test_scores_leave_out_what_no_run_has(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_scores({"a": {"step": 3, "r2": 0.98765}, "b": {"step": 4, "r2": None, "loss": 1.0}})
    text = capsys.readouterr().out
    assert "0.9877" in text
    assert "–" in text
    assert "1.0000" in text
    assert "MCC" not in text
