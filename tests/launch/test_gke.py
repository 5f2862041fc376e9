"""Manifests for GKE say what they should, fit JobSet's own schema, and are handed to kubectl."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

COMMON = ("--name=one", "--image=registry/a:b", "--workdir=gs://bucket/runs/a run")
TPU = (*COMMON, "--tpu=v6e", "--topology=4x4")
GPU = (*COMMON, "--gpu=nvidia-h100-80gb", "--nodes=4")
ALL = ("--spot", "--secret=keys", "--service-account=writer")


@pytest.fixture
def render(fakes):
    def call(*words: str) -> dict[str, Any]:
        done = fakes.run("gke.sh", "render", *words)
        assert done.returncode == 0, done.stderr
        return yaml.safe_load(done.stdout)

    return call


def parts(manifest):
    (group,) = manifest["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    return group, job, job["template"]["spec"], job["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("words", "slices", "hosts", "chips"),
    [
        (TPU, 1, 4, 4),
        ((*COMMON, "--tpu=v6e", "--topology=2x4", "--slices=3"), 3, 1, 8),
        ((*COMMON, "--tpu=v5p", "--topology=2x2x4"), 1, 4, 4),
        ((*COMMON, "--tpu=v5e", "--topology=1x1"), 1, 1, 1),
        ((*COMMON, "--tpu=v6e", "--topology=2x4", "--chips=4"), 1, 2, 4),
    ],
)
def test_tpus(render, words, slices, hosts, chips):
    group, job, pod, container = parts(render(*words))
    assert (group["replicas"], job["parallelism"], job["completions"]) == (slices, hosts, hosts)
    assert container["resources"]["limits"] == {"google.com/tpu": chips}
    assert set(pod["nodeSelector"]) == {
        "cloud.google.com/gke-tpu-accelerator",
        "cloud.google.com/gke-tpu-topology",
    }
    assert not [word for word in container["command"] if "coordinator" in word]


def test_gpus_are_told_who_they_are(render):
    word = "--config.source.title=a $(HOME) \"b\" <c> 'd' é"
    group, job, pod, container = parts(render(*GPU, *ALL, word))
    assert (group["replicas"], job["parallelism"]) == (1, 4)
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container["command"] == [
        *("python", "launch/again.py", "--workdir=gs://bucket/runs/a run", "--restarts=3"),
        *("--rank=$(JOB_INDEX)-$(POD_INDEX)", "--", "python", "-m", "aninfonce_jax.main"),
        *("--workdir=gs://bucket/runs/a run", word.replace("$(", "$$(")),
        *("--coordinator=one-workers-0-0.one:8476", "--num_processes=4"),
        "--process_id=$(POD_INDEX)",
    ]
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["serviceAccountName"] == "writer"
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]


@pytest.mark.parametrize("words", [TPU, GPU])
def test_what_asks_for_it_restarts_and_a_failure_does_not(render, words):
    manifest = render(*words)
    _, job, pod, container = parts(manifest)
    codes, disruption = job["podFailurePolicy"]["rules"]
    assert (codes["action"], disruption["action"]) == ("FailJob", "FailJob")
    assert codes["onExitCodes"]["values"] == [75, 76, 134]
    assert codes["onExitCodes"]["containerName"] == container["name"]
    again, failed = manifest["spec"]["failurePolicy"]["rules"]
    assert again["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert again["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert failed["action"] == "FailJobSet"
    assert (job["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert pod["terminationGracePeriodSeconds"] == 120


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Lists what a model did not take over from a manifest."""
    if isinstance(given, dict):
        return [
            problem
            for key, value in given.items()
            for problem in (
                lost(value, kept[key], f"{path}.{key}") if key in kept else [f"{path}.{key}"]
            )
        ]
    if isinstance(given, list):
        return [p for pair in zip(given, kept, strict=True) for p in lost(*pair, path)]
    return [] if given == kept else [path]


@pytest.mark.parametrize("words", [(*TPU, *ALL), (*GPU, *ALL)])
def test_the_models_of_jobset_know_every_field(render, words):
    models = pytest.importorskip("kubeflow_trainer_api.models")
    manifest = render(*words)
    kept = models.JobsetV1alpha2JobSet.from_dict(manifest).to_dict()
    assert lost(manifest, kept) == []


@pytest.mark.skipif(
    "ANINFONCE_JOBSET_CRD" not in os.environ,
    reason="ANINFONCE_JOBSET_CRD names no jobset.x-k8s.io_jobsets.yaml",
)
@pytest.mark.parametrize("words", [(*TPU, *ALL), (*GPU, *ALL)])
def test_the_cluster_would_accept_it(render, words):
    jsonschema = pytest.importorskip("jsonschema")
    crd = yaml.safe_load(Path(os.environ["ANINFONCE_JOBSET_CRD"]).read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    def close(part: Any) -> None:
        """Refuses fields that are not in the schema, as a cluster does on request."""
        if isinstance(part, dict):
            if "properties" in part and part.get("type") == "object":
                part.setdefault("additionalProperties", False)
            if part.get("x-kubernetes-int-or-string"):
                part.clear()
        for value in part.values() if isinstance(part, dict) else part:
            if isinstance(value, (dict, list)):
                close(value)

    metadata = schema["properties"].pop("metadata")
    close(schema)
    schema["properties"]["metadata"] = metadata
    jsonschema.validate(render(*words), schema)


def test_it_is_submitted_and_watched(fakes):
    done = fakes.run("gke.sh", "submit", *TPU)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((fakes.state / "manifest.yaml").read_text())["kind"] == "JobSet"
    (fakes.state / "jobset").write_text(" 0\n 1\n 2\nCompleted 2\n")
    watched = fakes.run("gke.sh", "watch", "--name=one", "--poll=0")
    assert watched.returncode == 0
    assert "JobSet one: running, restarts: 2\n" in watched.stdout
    assert "JobSet one: Completed 2\n" in watched.stdout


def test_a_failure_is_shown(fakes):
    (fakes.state / "jobset").write_text(" 0\nFailed 3\n")
    done = fakes.run("gke.sh", "watch", "--name=one", "--poll=0")
    assert done.returncode == 1
    assert "JobSet one has failed; the end of its log:\nthe last line of the log" in done.stderr


def test_a_jobset_that_is_not_there(fakes):
    done = fakes.run("gke.sh", "watch", "--name=one", "--poll=0")
    assert done.returncode == 1
    assert done.stderr == "aninfonce_jax: there is no JobSet one in namespace default\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--name=a"], "a first word is needed"),
        (["status"], "--name is needed"),
        (["submit", "--name=One", *TPU[1:]], "--name must be 1 to 40 of a-z"),
        (["submit", *COMMON], "one of --tpu and --gpu is needed"),
        (["submit", *COMMON, "--tpu=v9"], "argument --tpu: invalid choice"),
        (["submit", *COMMON, "--tpu=v6e"], "--topology must be such as 4x4"),
        (["submit", *COMMON, "--tpu=v6e", "--topology=3x3"], "9 chips of --topology=3x3"),
        (["submit", *COMMON, "--tpu=v5p", "--topology=4x4"], "slices of v5p have 3 sides"),
        (["submit", *COMMON, "--tpu=v5e", "--topology=2x2x4"], "slices of v5e have 2 sides"),
        (["submit", *TPU[:2], "--workdir=runs/a", *TPU[3:]], "--workdir must be gs://BUCKET"),
        (["submit", *TPU, "--process_id=0"], "--process_id=0 is set by this program"),
    ],
)
def test_wrong_words_are_refused_in_one_line(fakes, words, expected):
    done = fakes.run("gke.sh", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not fakes.calls("kubectl")
