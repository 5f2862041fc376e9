"""slurm.sbatch on a cluster of one node: preempted, out of time, queued again."""

import math

import pytest
import slurm_cluster
import small_run
from run_results import result_of

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.scores import registry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not()),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # The path of a socket is short.
    with slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("s")) as found:
        yield found


@pytest.fixture
def submit(cluster, fakes):
    """Submits slurm.sbatch of the checkout with a program that does as it is told."""

    def call(*words, workdir="a run", **variables):
        return cluster.submit(
            *words,
            "launch/slurm.sbatch",
            f"--workdir={fakes.checkout / workdir}",
            folder=fakes.checkout,
            environment={
                name: fakes.environment[name] for name in ("PATH", "FAKES", "ANINFONCE_AS_IS")
            }
            | variables,
        )

    return call


def test_done(submit):
    job = submit("--ntasks=2")
    assert job.wait() == ("COMPLETED", 0), job.log
    assert "aninfonce_jax: done" in job.log


def test_a_failure_is_not_queued_again(submit, fakes):
    fakes.plan(0, "1")
    job = submit("--ntasks=1")
    assert job.wait() == ("FAILED", 1), job.log
    assert "ended with 1: failed; the lines above say why" in job.log


def test_codes_that_ask_for_it_queue_it_again_until_there_is_no_progress(submit, fakes):
    fakes.plan(0, "save 75", "save 76", "134", "76")
    job = submit("--ntasks=1", ANINFONCE_RESTARTS="1")
    for start in (2, 3, 4, 5):
        job.go_on(start)
    assert job.wait() == ("FAILED", 1), job.log
    assert "2 starts without a new checkpoint (latest: run at step 1)" in job.log
    assert job.log.count("queued again") == 4


def test_a_stop_from_outside_queues_it_again(submit, fakes, cluster):
    fakes.plan(0, "wait 75", "save 0")
    job = submit("--ntasks=1")
    job.wait_for(lambda: "ready" in job.log)
    other = cluster.submit(
        "--partition=high", "--exclusive", "--wrap=sleep 1", folder=fakes.checkout
    )
    assert other.wait() == ("COMPLETED", 0)
    job.go_on(2)
    assert job.wait() == ("COMPLETED", 0), job.log
    assert "saved" in job.log


def train(cluster, folder, name, steps, **limits):
    """Submits a run of two tasks with two devices each."""
    folder.mkdir(exist_ok=True)
    return cluster.submit(
        *("--ntasks=2", "--cpus-per-task=2", f"--chdir={small_run.ROOT}"),
        f"--output={folder}/%x-%j.log",
        *(f"--{flag}={value}" for flag, value in limits.items()),
        str(small_run.ROOT / "launch" / "slurm.sbatch"),
        *small_run.flags(folder / name, steps, steps // 40),
        folder=folder,
        environment=small_run.environment(),
    )


def last_saved(folder):
    """Returns a function that tells the step of a run's last checkpoint; 0 if there is none."""

    def latest():
        saved = (folder / workdir_lib.CHECKPOINT_FOLDER).glob("*")
        return max((int(path.name) for path in saved if path.name.isdecimal()), default=0)

    return latest


def steps_that_last(cluster, folder, seconds):
    """Returns how many steps take so long on this machine."""
    short = train(cluster, folder, "short", 200)
    assert short.wait() == ("COMPLETED", 0), short.log
    rows = workdir_lib.read_metrics(folder / "short" / workdir_lib.METRICS_FILE)
    fastest = max(row.get(registry.STEPS_PER_SECOND, 0) for row in rows)
    return max(400, math.ceil(fastest * seconds / 40) * 40)


def test_training_that_is_preempted_and_runs_out_of_time_equals_one_that_is_not(cluster, tmp_path):
    # Slurm looks for jobs that are out of time every 30 s, and this one must not be done by then.
    steps = steps_that_last(cluster, tmp_path, 90)
    whole = train(cluster, tmp_path, "whole", steps)
    assert whole.wait(900) == ("COMPLETED", 0), whole.log

    job = train(cluster, tmp_path, "a run", steps, signal="B:TERM@3600")
    latest = last_saved(tmp_path / "a run")
    job.wait_for(lambda: latest() > 0)
    other = cluster.submit("--partition=high", "--exclusive", "--wrap=sleep 1", folder=tmp_path)
    assert other.wait() == ("COMPLETED", 0)
    job.go_on(2)

    preempted_at = latest()
    job.wait_for(lambda: latest() > preempted_at)
    # Less than the hour before its end at which the job wants to know of it.
    job.change("TimeLimit=59")
    job.go_on(3, changes=("TimeLimit=UNLIMITED",))

    stopped_at = latest()
    assert job.wait(900) == ("COMPLETED", 0), job.log
    assert 0 < preempted_at < stopped_at < steps, job.log
    assert job.log.count("ended with 75: asked to stop; the state is saved; queued again") == 2
    assert "start 3, on localhost" in job.log
    assert result_of(tmp_path / "a run") == result_of(tmp_path / "whole")
