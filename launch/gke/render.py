r"""Prints the JobSet of a run on GKE, on TPUs or GPUs.

    python launch/gke/render.py --name=one --image=IMAGE --tpu=v6e --topology=4x4 \
        --workdir=gs://bucket/runs/one --config=configs/imagenet.py | kubectl apply --filename=-

What is no flag of this program goes to the main module, as it is.
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

try:
    import jinja2
except ModuleNotFoundError:
    hint = "install it, or set PYTHON to a Python that has it, such as .venv/bin/python"
    sys.exit(f"aninfonce_jax: {sys.executable} has no jinja2, to make manifests with: {hint}")

# Kind of TPU: value of the node label, and chips of a host of a slice with several hosts.
TPUS = {
    "v4": ("tpu-v4-podslice", 4),
    "v5e": ("tpu-v5-lite-podslice", 4),
    "v5p": ("tpu-v5p-slice", 4),
    "v6e": ("tpu-v6e-slice", 4),
    "tpu7x": ("tpu7x", 4),
}
# Kinds whose slices are flat; those of the others have three sides.
_FLAT = ("v5e", "v6e")
# Slices that are one host with more chips than those of larger slices.
_ONE_HOST = {("v5e", "2x4"): 8, ("v6e", "2x4"): 8}
_PORT = 8476


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"aninfonce_jax: {message}; see --help", file=sys.stderr)
        sys.exit(2)


def main(arguments: list[str]) -> int:
    """Prints the manifest that the arguments ask for."""
    parser = _parser()
    given, words = parser.parse_known_args(arguments)
    problem = _problem(given, words)
    if problem:
        parser.error(problem)
    template = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    ).from_string((Path(__file__).parent / "jobset.yaml.j2").read_text())
    print(template.render(**values(given, words)), end="")
    return 0


def _parser() -> _Parser:
    parser = _Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--name", required=True, help="name of the JobSet: lower case, digits and dashes")
    add("--image", required=True, help="the image of launch/gke/Dockerfile, pushed to a registry")
    add("--workdir", required=True, help="gs://BUCKET/..., or a folder that all pods share")
    add("--tpu", choices=TPUS, help="kind of TPU")
    add("--topology", default="", help="of one slice of TPUs, such as 4x4")
    add("--chips", type=int, default=0, help="TPU chips of a host (default: by kind)")
    add("--slices", type=int, default=1, help="slices of TPUs (default: 1)")
    add("--gpu", help="kind of GPU, as GKE calls it, such as nvidia-h100-80gb")
    add("--gpus", type=int, default=8, help="GPUs of a node (default: 8)")
    add("--nodes", type=int, default=1, help="nodes with GPUs (default: 1)")
    add("--spot", action="store_true", help="on spot nodes")
    add("--namespace", default="default", help="(default: default)")
    add("--service-account", default="", help="Kubernetes account that may write the bucket")
    add("--secret", default="", help="Kubernetes secret whose keys become variables")
    add("--grace", type=int, default=120, help="seconds to save before an end (default: 120)")
    add("--restarts", type=int, default=3, help="restarts without a new checkpoint (default: 3)")
    return parser


def _problem(given: argparse.Namespace, words: list[str]) -> str:
    """Says what is wrong with the arguments; nothing if nothing is."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", given.name):
        return f"--name must be 1 to 40 of a-z, 0-9 and -, from a letter on; got {given.name!r}"
    if not re.match(r"gs://[^/]|/", given.workdir):
        return f"--workdir must be gs://BUCKET/... or begin with a slash; got {given.workdir!r}"
    if bool(given.tpu) == bool(given.gpu):
        return "one of --tpu and --gpu is needed, such as --tpu=v6e --topology=4x4"
    if given.tpu and not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", given.topology):
        return f"--topology must be such as 4x4 or 2x2x4; got {given.topology!r}"
    if given.tpu:
        sides, example = (2, "4x4") if given.tpu in _FLAT else (3, "2x2x4")
        if given.topology.count("x") != sides - 1:
            return (
                f"--topology={given.topology}: slices of {given.tpu} have {sides} sides, such as "
                f"{example}"
            )
    for name in ("slices", "gpus", "nodes", "grace"):
        if getattr(given, name) < 1:
            return f"--{name} must be at least 1; got {getattr(given, name)}"
    if given.chips < 0 or given.restarts < 0:
        return "--chips and --restarts can't be negative"
    if given.tpu and _chips(given) % _host_chips(given):
        return f"{_chips(given)} chips of --topology={given.topology} are no whole hosts"
    ours = "--(coordinator|num_processes|process_id)"
    set_here = [word for word in words if re.match(ours, word)]
    if set_here:
        return f"{set_here[0]} is set by this program; leave it out"
    return _unknown(words)


def _unknown(words: list[str]) -> str:
    """Says what the main module will not take, before machines are asked for."""
    known = (Path(__file__).parent.parent / "program_flags.txt").read_text().split()
    takes = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_flag = re.match(r"-(?![0-9.])", word) is not None
        if is_flag and not flag.startswith("--config.") and flag not in known:
            return f"unknown flag {flag!r}: neither this program nor the main module has it"
        if not is_flag and not takes:
            return f"unexpected argument {word!r}"
        takes = is_flag and not equals
    return ""


def _chips(given: argparse.Namespace) -> int:
    return math.prod(int(side) for side in given.topology.split("x"))


def _host_chips(given: argparse.Namespace) -> int:
    usual = _ONE_HOST.get((given.tpu, given.topology), TPUS[given.tpu][1])
    return given.chips or min(usual, _chips(given))


def values(given: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Returns what the template is filled with."""
    found = vars(given) | {"port": _PORT}
    if given.tpu:
        found |= {
            "chips": _host_chips(given),
            "hosts": _chips(given) // _host_chips(given),
            "resource": "google.com/tpu",
            "node_labels": {
                "cloud.google.com/gke-tpu-accelerator": TPUS[given.tpu][0],
                "cloud.google.com/gke-tpu-topology": given.topology,
            },
        }
    else:
        found |= {
            "chips": given.gpus,
            "hosts": given.nodes,
            "slices": 1,
            "resource": "nvidia.com/gpu",
            "node_labels": {"cloud.google.com/gke-accelerator": given.gpu},
        }
    if given.spot:
        found["node_labels"]["cloud.google.com/gke-spot"] = "true"
    return found | {"command": _command(given, words)}


def _command(given: argparse.Namespace, words: list[str]) -> list[str]:
    # Kubernetes puts variables in place of $(NAME), and takes $$ for a dollar.
    program = [word.replace("$(", "$$(") for word in (f"--workdir={given.workdir}", *words)]
    if not given.tpu and given.nodes > 1:
        program += [
            f"--coordinator={given.name}-workers-0-0.{given.name}:{_PORT}",
            f"--num_processes={given.nodes}",
            "--process_id=$(POD_INDEX)",
        ]
    return [
        *("python", "launch/again.py", program[0], f"--restarts={given.restarts}"),
        *("--rank=$(JOB_INDEX)-$(POD_INDEX)", "--"),
        *("python", "-m", "aninfonce_jax.main", *program),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
