"""A run on a Cloud TPU slice: asked for, taken away, asked for again, given back."""

import shutil
import signal
import subprocess
import time

import pytest

PLACE = ("--tpu=mine", "--zone=us-east5-b", "--project=p")


@pytest.fixture
def arguments(fakes, tmp_path):
    (fakes.state / "hosts").write_text("2")
    workdir = tmp_path / "of one test" / "shared" / "a run"
    times = ("--poll=0", "--grace=1", "--patience=1")
    return ("run", *PLACE, "--type=v6e-8", "--spot", *times, "--shared", f"--workdir={workdir}")


def verbs(fakes):
    """Returns what gcloud was asked to do with the slice, without mere questions."""
    calls = [" ".join(words[2:4]) for words in fakes.calls("gcloud")]
    return [verb for verb in calls if verb.endswith(("create", "delete", "scp"))]


def wait_for_processes(fakes, number=2):
    while len(list(fakes.state.glob("ready-*"))) < number:
        time.sleep(0.02)


def test_a_slice_is_asked_for_and_used(fakes, arguments):
    (fakes.state / "create").write_text("WAITING_FOR_RESOURCES PROVISIONING ACTIVE\n")
    word = '--config.source.title=it\'s; $HOME "a"'
    done = fakes.run("tpu_vm.sh", *arguments, word)
    assert done.returncode == 0, done.stderr
    starts = [words[2:] for words in fakes.calls("python")]
    assert starts == [[arguments[-1], word]] * 2
    assert verbs(fakes) == ["queued-resources create", "tpu-vm scp"]
    create = next(words for words in fakes.calls("gcloud") if "create" in words)
    assert create[2:] == [
        *("queued-resources", "create", "mine", "--zone=us-east5-b", "--project=p"),
        *("--node-id=mine", "--accelerator-type=v6e-8", "--runtime-version=v2-alpha-tpuv6e"),
        *("--spot", "--quiet"),
    ]
    for state in ("NONE", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"):
        assert f"slice mine: {state}\n" in done.stdout
    assert "process 0 says" in done.stdout
    assert "slice mine is still there, and costs money: bash launch/tpu_vm.sh delete" in done.stdout


def test_a_slice_that_is_there_is_reused_and_given_back(fakes, arguments):
    (fakes.state / "request").write_text("ACTIVE\n")
    done = fakes.run("tpu_vm.sh", *arguments, "--delete", "--to=my logs")
    assert done.returncode == 0, done.stderr
    assert verbs(fakes) == ["tpu-vm scp", "queued-resources delete"]
    logs = sorted((fakes.checkout / "my logs").iterdir())
    assert [path.name for path in logs] == ["mine-0.log", "mine-1.log"]
    assert all("says:" in path.read_text() for path in logs)


@pytest.mark.parametrize("how", ["SUSPENDED", "PREEMPTED"])
def test_a_slice_that_is_taken_away_is_asked_for_again(fakes, arguments, how):
    for process in (0, 1):
        fakes.plan(process, "wait 75", "save 0")
    launcher = fakes.start("tpu_vm.sh", *arguments)
    wait_for_processes(fakes)
    if how == "SUSPENDED":
        (fakes.state / "request").write_text("SUSPENDING\nSUSPENDED\n")
    else:
        # The hosts are gone, and the request does not say so yet.
        (fakes.state / "node").write_text("PREEMPTED")
        (fakes.state / "mine-w1.down").touch()
        while verbs(fakes).count("queued-resources delete") < 1:
            time.sleep(0.02)
        (fakes.state / "mine-w1.down").unlink()
        (fakes.state / "node").unlink()
    out, err = launcher.communicate(timeout=100)
    assert launcher.returncode == 0, out + err
    assert "the machines were taken away" in out
    assert "starting again" in out
    first = ["queued-resources create", "tpu-vm scp"]
    assert verbs(fakes) == [*first, "queued-resources delete", *first]


def test_it_is_started_again_where_it_is_after_codes_that_ask_for_it(fakes, arguments):
    fakes.plan(0, "save 76", "0")
    fakes.plan(1, "134", "0")
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 0, done.stderr
    assert verbs(fakes) == ["queued-resources create", "tpu-vm scp"]
    assert len(fakes.calls("python")) == 4


def test_a_failure_ends_it_with_the_ends_of_the_logs(fakes, arguments):
    fakes.plan(1, "1")
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 1
    assert "process 1 ends with 1" in done.stderr
    assert "costs money" in done.stdout


def test_restarts_without_progress_come_to_an_end(fakes, arguments):
    fakes.plan(0, "76")
    done = fakes.run("tpu_vm.sh", *arguments, "--restarts=1")
    assert done.returncode == 1
    assert "2 starts without a new checkpoint (latest: none)" in done.stderr
    assert len(fakes.calls("python")) == 4


@pytest.mark.parametrize(
    ("answers", "expected", "creates"),
    [
        (
            "ERROR: Quota 'TPUV6EPreemptiblePerProjectPerZone' exhausted. Limit 0 in zone z\n",
            "the slice is refused: ERROR: Quota",
            1,
        ),
        (
            "ERROR: There is no more capacity in the zone\n",
            "the slice was refused 4 times; see above, or try another zone or type",
            4,
        ),
        ("FAILED\n", "the slice was refused 4 times", 4),
    ],
)
def test_a_slice_that_is_refused(fakes, arguments, answers, expected, creates):
    (fakes.state / "create").write_text(answers)
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 1
    assert expected in done.stderr
    assert verbs(fakes).count("queued-resources create") == creates
    assert not fakes.calls("python")


def test_a_slice_that_does_not_come(fakes, arguments):
    (fakes.state / "create").write_text("WAITING_FOR_RESOURCES\n")
    done = fakes.run("tpu_vm.sh", *arguments, "--wait=1")
    assert done.returncode == 1
    assert "was not there within 1 s (state WAITING_FOR_RESOURCES)" in done.stderr


def test_a_host_that_does_not_answer(fakes, arguments):
    (fakes.state / "request").write_text("ACTIVE\n")
    (fakes.state / "mine-w1.down").touch()
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 1
    assert "copying failed on mine: ssh: connect to host mine-w1" in done.stderr
    for words in (["install"], ["logs"]):
        assert fakes.run("tpu_vm.sh", *words, *PLACE).returncode in (0, 1)
    (fakes.state / "mine-w1.down").unlink()
    assert fakes.run("tpu_vm.sh", "install", *PLACE).returncode == 0
    (fakes.state / "mine-w1.down").touch()
    status = fakes.run("tpu_vm.sh", "status", *PLACE)
    assert status.stdout.startswith("slice mine: ACTIVE\nworker ")
    assert status.stdout.endswith(" run absent\n")
    assert "1 of 2 hosts do not answer" in status.stderr


def test_ctrl_c_stops_the_run_and_leaves_the_slice(fakes, arguments):
    for process in (0, 1):
        fakes.plan(process, "wait 75")
    launcher = fakes.start("tpu_vm.sh", *arguments, "--grace=60")
    wait_for_processes(fakes)
    launcher.send_signal(signal.SIGINT)
    out, err = launcher.communicate(timeout=100)
    assert launcher.returncode == 75, out + err
    assert "stopped with 75" in out
    assert "costs money" in out
    assert "queued-resources delete" not in verbs(fakes)


def test_several_slices(fakes, arguments):
    done = fakes.run("tpu_vm.sh", *arguments, "--slices=2")
    assert done.returncode == 0, done.stderr
    create = next(words for words in fakes.calls("gcloud") if "create" in words)
    assert {"--node-count=2", "--node-prefix=mine"} < set(create)
    assert len(fakes.calls("python")) == 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tpu=a"], "a first word is needed"),
        (["delete", "--tpu=a"], "--zone is needed: where the slice is"),
        (["create", *PLACE], "--type is needed: the kind and size of the slice"),
        (["run", *PLACE, "--type=v6e-8"], "--workdir is needed"),
        (["run", *PLACE, "--type=v6e-8", "--workdir=/a"], "is gone with the slice; use gs://"),
        (["run", *PLACE, "--type=tpu7x-8", "--workdir=gs://a/b"], "no --runtime is known"),
        (["run", *PLACE, "--type=v6e-8", "--process_id=1"], "leave it out"),
        (
            ["run", *PLACE, "--type=v6e-8", "--workdir=gs://a/b", "--name=../x"],
            "--name takes letters, digits",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_line(fakes, words, expected):
    done = fakes.run("tpu_vm.sh", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not fakes.calls("gcloud")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_knows_every_flag(fakes, arguments, tmp_path):
    """Against the manual of the gcloud at hand; nothing is asked of Google."""
    fakes.run("tpu_vm.sh", *arguments, "--delete")
    calls = {tuple(words[:4]): set() for words in fakes.calls("gcloud")}
    for words in fakes.calls("gcloud"):
        calls[tuple(words[:4])] |= {word.partition("=")[0] for word in words if word[:2] == "--"}
    wide = {"--project", "--quiet", "--format"}
    for command, flags in calls.items():
        manual = subprocess.run(
            ["gcloud", *command, "--help"],
            env={"PATH": "/usr/bin:/bin", "CLOUDSDK_CONFIG": str(tmp_path), "TERM": "dumb"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert {flag for flag in flags - wide if flag not in manual} == set(), command


def test_an_account_that_may_not_ask_is_told_at_once(fakes, arguments):
    answer = "ERROR: (gcloud) You do not currently have an active account selected."
    (fakes.state / "describe").write_text(f"{answer}\n")
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 1
    assert f"gcloud can't be asked about slice mine: {answer}" in done.stderr
    assert "slice mine may be there, and cost money" in done.stdout
    assert verbs(fakes) == []


def test_a_network_that_fails_is_said_and_asked_again(fakes, arguments):
    answer = "ERROR: gcloud crashed (ConnectionError): Network is unreachable"
    (fakes.state / "describe").write_text(f"{answer}\nthen as usual\n")
    done = fakes.run("tpu_vm.sh", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"slice mine: UNKNOWN\naninfonce_jax: gcloud: {answer}\n" in done.stdout
