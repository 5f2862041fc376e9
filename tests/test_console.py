from aninfonce_jax.config_schema import Config
from aninfonce_jax.console import print_config, print_scores


def test_every_field_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_config(Config())
    lines = capsys.readouterr().out.splitlines()
    assert any("train.batch_size" in line and "1000" in line for line in lines)
    assert any("dgp.concentration.high" in line and "25.0" in line for line in lines)


def test_scores_leave_out_what_no_run_has(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_scores({"a": {"step": 3, "r2": 0.98765}, "b": {"step": 4, "r2": None, "loss": 1.0}})
    text = capsys.readouterr().out
    assert "0.9877" in text
    assert "–" in text
    assert "1.0000" in text
    assert "MCC" not in text
