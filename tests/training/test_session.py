"""When a session looks at the device, and what it keeps between two looks."""

import types

from hypothesis import given, settings
from hypothesis import strategies as st

from aninfonce_jax.config.schema import CheckpointConfig, EvalConfig, LogConfig
from aninfonce_jax.training.session import next_look


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 399), *[st.integers(1, 400)] * 5)
def test_no_look_is_missed_and_the_end_never_passed(start, steps, dispatch, evaluate, save, log):
    intervals = types.SimpleNamespace(
        steps=steps,
        dispatch_steps=dispatch,
        evaluation=EvalConfig(every=evaluate),
        checkpoint=CheckpointConfig(every=save),
        log=LogConfig(every=log),
    )
    seen, step = [], start
    while step < steps:
        following = next_look(step, intervals)
        assert step < following <= step + dispatch
        seen.append(step := following)
    due = {n for every in (evaluate, save, log) for n in range(every, steps, every) if n > start}
    assert due | ({steps} if start < steps else set()) <= set(seen)
