"""What the GPU compiler must be told of a GPU that is not there: NVIDIA's published figures.

The text is XLA's `GpuTargetConfigProto`, with the fields that jaxlib 0.10 asks for.
"""

from typing import NamedTuple


class _Silicon(NamedTuple):
    """A GPU, as its architecture's white paper describes it."""

    name: str
    capability: tuple[int, int]
    cores: int
    lanes: int
    shared_memory: int
    cache: int
    gigahertz: float
    memory: int
    bandwidth: int
    links: int


_KIB = 1024
_HOPPER_SHARED = 228 * _KIB
_AMPERE_SHARED = 164 * _KIB
_TARGETS = {
    "a100-40": _Silicon(
        "NVIDIA A100-SXM4-40GB", (8, 0), 108, 64, _AMPERE_SHARED, 40 * 2**20, 1.41,
        40 * 10**9, 1555 * 10**9, 12,
    ),
    "a100": _Silicon(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, _AMPERE_SHARED, 40 * 2**20, 1.41,
        80 * 10**9, 2039 * 10**9, 12,
    ),
    "h100": _Silicon(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, _HOPPER_SHARED, 50 * 2**20, 1.98,
        80 * 10**9, 3350 * 10**9, 18,
    ),
    "h200": _Silicon(
        "NVIDIA H200", (9, 0), 132, 128, _HOPPER_SHARED, 50 * 2**20, 1.98,
        141 * 10**9, 4800 * 10**9, 18,
    ),
}  # fmt: skip


def target_text(chip: str) -> str:
    """Returns the description of a GPU, by the name that a topology gives it."""
    gpu = _TARGETS[chip]
    major, minor = gpu.capability
    # Instructions of Hopper that later GPUs do not have are in its "a" variant.
    is_hopper = major == 9
    feature = "feature_extension: ACCELERATED_FEATURES" if is_hopper else ""
    version = f"{major}.{minor}{'a' if is_hopper else ''}"
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * _KIB}
  shared_memory_per_block_optin: {gpu.shared_memory - _KIB}
  shared_memory_per_core: {gpu.shared_memory}
  threads_per_core_limit: 2048
  core_count: {gpu.cores}
  fpus_per_core: {gpu.lanes}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: {2**16}
  registers_per_block_limit: {2**16}
  memory_bandwidth: {gpu.bandwidth}
  l2_cache_size: {gpu.cache}
  clock_rate_ghz: {gpu.gigahertz}
  device_memory_size: {gpu.memory}
  cuda_compute_capability {{ major: {major} minor: {minor} {feature} }}
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {version}"
  device_address_bits: 64
  ecc_enabled: true
  name: "{gpu.name}"
  driver_version: "13.0.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
  device_interconnect_info {{ active_links: {gpu.links} }}
}}
platform_name: "CUDA"
device_description_str: "{gpu.name}"
"""
