"""slurm.sbatch on a cluster of one node: preempted, out of time, queued again."""

import pytest
import slurm_cluster

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
