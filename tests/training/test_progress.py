import io
import itertools

import pytest

from aninfonce_jax.training.progress import Progress


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def make_progress(clock, *args, **kwargs):
    stream = io.StringIO()
    progress = Progress(*args, stream=stream, clock=clock, **kwargs)
    return progress, lambda: stream.getvalue().splitlines()


def test_plain_progress_is_throttled_and_leaves_out_compilation(clock):
    progress, lines = make_progress(clock, 1000, label="quick")
    progress.update(0, {"loss": 7.0}, force=True)  # the evaluation of the start
    progress.status("compiling")
    clock.now += 60  # the first call compiles
    progress.update(100, loss=1.23456)
    for step in range(200, 1001, 100):
        clock.now += 4
        progress.update(step)
    assert lines() == [
        "quick: step 0/1,000 · held-out: loss 7 (step 0)",
        "quick: compiling",
        "quick: step 100/1,000 · loss 1.235 · held-out: loss 7 (step 0)",
        "quick: step 400/1,000 · 25 steps/s · ETA 0:24 · loss 1.235 · held-out: loss 7 (step 0)",
        "quick: step 700/1,000 · 25 steps/s · ETA 0:12 · loss 1.235 · held-out: loss 7 (step 0)",
        "quick: step 1,000/1,000 · 25 steps/s · loss 1.235 · held-out: loss 7 (step 0)",
    ]


def test_forced_lines_and_messages_are_always_printed(clock):
    progress, lines = make_progress(clock, 10_000, start_step=4000)
    assert progress.due
    progress.update(4100, loss=2.0)
    assert not progress.due
    progress.update(4200, {"R²": 0.5, "loss": 2.5}, force=True)
    progress.message("saved [bold] in a\n\x1b[2Jb")
    progress.update(4300)
    assert lines() == [
        "step 4,100/10,000 · loss 2",
        "step 4,200/10,000 · loss 2 · held-out: R² 0.5, loss 2.5 (step 4,200)",
        r"saved [bold] in a\n\x1b[2Jb",
    ]


def test_paused_time_does_not_count(clock):
    progress, lines = make_progress(clock, 7400)
    progress.update(100)
    clock.now += 10
    with progress.pause():
        clock.now += 1000
    clock.now += 10
    progress.update(200)
    assert lines()[-1] == "step 200/7,400 · 5 steps/s · ETA 24:00"
    progress.update(200, {"r2": 0.5}, force=True)
    assert lines()[-1] == "step 200/7,400 · 5 steps/s · ETA 24:00 · held-out: r2 0.5 (step 200)"


def test_the_rate_follows_recent_updates(clock):
    progress, lines = make_progress(clock, 1_000_000)
    for step in itertools.islice(itertools.count(1), 100):
        clock.now += 10 if step <= 50 else 0.004
        progress.update(step)
    progress.update(100, force=True)
    assert lines()[-1].startswith("step 100/1,000,000 · 250 steps/s · ETA 1:06:40")


def test_off_prints_nothing_and_closing_ends_printing(clock):
    progress, lines = make_progress(clock, 10, mode="off")
    progress.update(5, {"r2": 1.0}, force=True)
    progress.message("hello")
    progress.status("compiling")
    assert not progress.due
    assert lines() == []
    progress.warn("the loss is at chance")
    assert lines() == ["aninfonce_jax: warning: the loss is at chance"]
    progress, lines = make_progress(clock, 10, mode="plain")
    progress.close()
    progress.update(10, force=True)
    assert lines() == []


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="progress must be auto, rich, plain or off, got 'loud'"):
        Progress(10, mode="loud")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_auto_draws_a_live_line_on_a_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress(100, stream=stream, label="run", clock=clock) as progress:
        progress.update(50, {"r2": 0.5})
        clock.now += 5
        progress.message("checkpoint [/saved]")
        progress.update(100, {"r2": 0.75})
    text = stream.getvalue()
    assert "checkpoint [/saved]\n" in text
    assert "run: step 100/100 · 10 steps/s · held-out: r2 0.75" in text
    assert "\x1b[?25l" in text  # the cursor was hidden ...
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # ... and is back


def test_other_processes_print_nothing():
    stream = io.StringIO()
    with Progress(10, mode="plain", stream=stream, is_shown=False) as progress:
        progress.update(10, {"loss": 1.0}, force=True)
        progress.message("hello")
    assert stream.getvalue() == ""
