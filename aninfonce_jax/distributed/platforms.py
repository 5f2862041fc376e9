"""Which platform jax will take here, as far as that can be told before it is asked.

Several processes can't ask jax: their runtimes first wait until all of them have brought devices of
the same kind, and a host without any, or with others, keeps all waiting until a time-out that names
nobody. So they compare what they are about to take beforehand.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# Device files of TPU chips: the older driver's, and the newer one's.
TPU_FILES = ("accel[0-9]*", "vfio/[0-9]*")
# Of NVIDIA's GPUs, and of AMD's.
_GPU_FILES = ("nvidia[0-9]*", "kfd")
_GPU_NAMES = ("cuda", "rocm", "gpu")


def expected_platform(environ: Mapping[str, str], devices: Path = Path("/dev")) -> str:
    """Returns "tpu", "gpu" or "cpu", or the name of another platform that is asked for.

    Args:
      environ: the environment: JAX_PLATFORMS has the first word.
      devices: the folder of device files.
    """
    asked = environ.get("JAX_PLATFORMS", "").split(",")[0].strip()
    if asked:
        return "gpu" if asked in _GPU_NAMES else asked
    if has_file(devices, TPU_FILES) and find_spec("libtpu") is not None:
        return "tpu"
    are_hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    # jax reaches GPUs by modules of this name space.
    if has_file(devices, _GPU_FILES) and find_spec("jax_plugins") is not None and not are_hidden:
        return "gpu"
    return "cpu"


def has_file(folder: Path, patterns: tuple[str, ...]) -> bool:
    """Returns whether a folder has a file of one of these names."""
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)
