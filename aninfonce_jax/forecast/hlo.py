"""Reads a compiled program's text: what it moves through memory, and what chips send each other.

A compiler counts a loop's body once. Here it counts as often as it runs, where that is written
in the program; a loop whose length only the data tell, such as the sampling of a truncated
distribution or the steps of one call, counts once.
"""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
    "collective-broadcast",
)
# Neither reads nor writes memory.
_FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"),
    *("call", "after-all", "partition-id", "replica-id", "iota", "async-done", "async-update"),
    *("copy-done", "send-done", "recv-done", "opt-barrier", "domain"),
}
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,]*)\](?:\{([^{}]*)\})?")
_CALLED = re.compile(r"(calls|body|condition|to_apply|branch_computations|called_computations|"
                     r"true_computation|false_computation)=(\{[^}]*\}|%?[\w.-]+)")  # fmt: skip
_TRIPS = re.compile(r'"?known_trip_count"?:\{"?n"?:"?(\d+)"?\}')
# Groups of devices: [groups,members]<=[sides]T(order of the sides), {{0,1},{2,3}}, {0,1}.
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LIST = re.compile(r"\{([\d,]+)\}")
_PAIR = re.compile(r"\{(\d+),(\d+)\}")
_MESH_SIZES = re.compile(r"'([\w.]+)'=(\d+)")
# Bits of dtypes whose name does not end in them.
_BITS = {"pred": 8, "f8": 8}


@dataclasses.dataclass(frozen=True)
class Collective:
    """Something that chips send each other in a step.

    Attributes:
      kind: such as "all-reduce".
      count: how often in a step.
      bytes: what it puts out on one chip, all of its runs together.
      axes: of the mesh that it goes along, by name.
      group: how many chips take part in each.
      nodes: how many nodes it joins; where chips only hand something on, those of one hop.
      is_async: whether the program goes on meanwhile.
    """

    kind: str
    count: int
    bytes: int
    axes: tuple[str, ...]
    group: int
    nodes: int
    is_async: bool


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What a program moves in a step, on one chip.

    Attributes:
      memory: bytes that go into and out of operations, in HBM.
      memory_once: the same with every loop's body counted once, as compilers do.
      collectives: by kind, axes, group and whether they are asynchronous; the largest first.
      kernels: Pallas calls, as the program lists them.
      open_loops: loops whose length is not known.
    """

    memory: int
    memory_once: int
    collectives: tuple[Collective, ...]
    kernels: int
    open_loops: int


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shape: str
    opcode: str
    arguments: str
    rest: str
    is_root: bool

    @functools.cached_property
    def operands(self) -> list[str]:
        """The instructions that it takes its arguments from."""
        return re.findall(r"%([\w.-]+)", self.arguments)


_Computation = dict[str, _Instruction]


def read_traffic(text: str, mesh: Mapping[str, int], per_node: int = 0) -> Traffic:
    """Returns what a program moves.

    Args:
      text: of the compiled and scheduled program, HLO.
      mesh: of the devices that run it: the sizes of its axes by name, in their order.
      per_node: how many devices, one after the other, are a node; 0: all.
    """
    computations, entry = _parse(text)
    memory = memory_once = open_loops = 0
    seen: set[str] = set()
    found: dict[_Kind, list[int]] = collections.defaultdict(lambda: [0, 0])
    for name, times, is_open in _runs(computations, entry):
        open_loops += is_open
        computation = computations[name]
        for instruction in computation.values():
            size = _moved(instruction, computation, computations)
            memory += times * size
            memory_once += size if name not in seen else 0
            kind = _collective(instruction)
            if kind:
                key = _kind(kind, instruction, mesh, per_node)
                found[key][0] += times
                found[key][1] += times * _put_out(instruction, kind)
        seen.add(name)
    collectives = [
        Collective(kind, count, size, axes, group, nodes, is_async)
        for (kind, axes, group, nodes, is_async), (count, size) in found.items()
    ]
    return Traffic(
        memory=memory,
        memory_once=memory_once,
        collectives=tuple(sorted(collectives, key=lambda one: -one.bytes)),
        kernels=text.count('custom_call_target="tpu_custom_call"'),
        open_loops=open_loops,
    )


# --- The program ---


def _parse(text: str) -> tuple[dict[str, _Computation], str]:
    """Returns the computations of a program by name, and the name of the first to run."""
    computations: dict[str, _Computation] = {}
    entry = ""
    current: _Computation = {}
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" ") and "(" in line:
            head = line.removeprefix("ENTRY ").split()[0].lstrip("%")
            current = computations[head] = {}
            if line.startswith("ENTRY "):
                entry = head
        elif line.startswith(" ") and " = " in line:
            instruction = _instruction(line.strip())
            current[instruction.name] = instruction
    return computations, entry


def _instruction(line: str) -> _Instruction:
    is_root = line.startswith("ROOT ")
    name, _, value = line.removeprefix("ROOT ").partition(" = ")
    end = _closing(value, 0) + 1 if value.startswith("(") else value.index(" ")
    shape, call = value[:end], value[end:].lstrip()
    start = call.index("(")
    stop = _closing(call, start)
    return _Instruction(
        name.lstrip("%"), shape, call[:start], call[start + 1 : stop], call[stop + 1 :], is_root
    )


def _closing(text: str, start: int) -> int:
    """Returns where the bracket that opens at `start` closes."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at
    raise ValueError(f"a bracket stays open in {text[:80]!r}")


def _runs(computations: Mapping[str, _Computation], entry: str) -> Iterator[tuple[str, int, bool]]:
    """Yields each computation that runs by itself, how often, and whether that is a guess."""
    waiting = [(entry, 1, False)]
    while waiting:
        name, times, is_open = waiting.pop()
        yield name, times, is_open
        for instruction in computations[name].values():
            called = _called(instruction)
            if instruction.opcode == "while":
                trips = _trips(instruction, computations[called["condition"][0]])
                waiting.append((called["body"][0], times * (trips or 1), trips is None))
                waiting.append((called["condition"][0], times * (trips or 1), False))
            elif instruction.opcode in ("call", "conditional", "async-start"):
                # One branch of a condition runs: the largest is counted, to be safe.
                keys = [key for key in called if key != "to_apply" or instruction.opcode == "call"]
                branches = [branch for key in keys for branch in called[key]]
                if branches:
                    largest = max(branches, key=lambda branch: len(computations.get(branch, ())))
                    waiting.append((largest, times, False))


def _called(instruction: _Instruction) -> dict[str, list[str]]:
    return {
        key: [name.strip().lstrip("%") for name in names.strip("{}").split(",")]
        for key, names in _CALLED.findall(instruction.rest)
    }


def _trips(loop: _Instruction, condition: _Computation) -> int | None:
    """Returns how often a loop runs; None where only the data tell."""
    if known := _TRIPS.search(loop.rest):
        return int(known[1])
    root = next((one for one in condition.values() if one.is_root), None)
    if root is None or root.opcode != "compare" or "direction=LT" not in root.rest:
        return None
    limit = condition.get(root.operands[1]) if len(root.operands) == 2 else None
    if limit is None or not re.fullmatch(r"\d+", limit.arguments):
        return None
    return int(limit.arguments)


# --- Sizes ---


@functools.lru_cache(maxsize=2**16)
def _arrays(shape: str) -> tuple[tuple[int, bool], ...]:
    """Returns the bytes of each array of a shape, and whether it is in main memory."""
    found = []
    for dtype, bits, dims, layout in _ARRAY.findall(shape):
        width = _BITS.get(dtype) or (8 if dtype.startswith("f8") else int(bits or 8))
        size = math.prod(map(int, filter(None, dims.split(","))))
        # S(1) and above mark memory on the chip itself, next to its units.
        found.append((-(-size * width // 8), not re.search(r"S\([1-9]", layout or "")))
    return tuple(found)


def _size(shape: str, *, in_memory: bool = True) -> int:
    return sum(size for size, is_main in _arrays(shape) if is_main or not in_memory)


def _moved(
    instruction: _Instruction, computation: _Computation, computations: Mapping[str, _Computation]
) -> int:
    """Returns the bytes that an operation reads and writes in main memory."""
    opcode = instruction.opcode
    if opcode in _FREE or opcode.endswith("-done"):
        return 0
    operands = [computation[name].shape for name in instruction.operands]
    if opcode == "slice-start":
        # Lists what it slices, the slice, and a context; reads and writes no more than the slice.
        slices = _arrays(instruction.shape)[1:2]
        return sum(size * (2 if is_main else 1) for size, is_main in slices)
    if opcode.endswith("-start"):
        # Its shape lists what it reads beside what it writes.
        first = _arrays(instruction.shape)[:1]
        return sum(size for size, is_main in first if is_main) + sum(map(_size, operands))
    if opcode in ("dynamic-slice", "slice", "gather"):
        whole = bool(operands) and _size(operands[0]) > 0
        part = _size(instruction.shape, in_memory=False)
        return _size(instruction.shape) + (part if whole else 0)
    if opcode == "dynamic-update-slice":
        return 2 * _size(operands[1]) if _size(instruction.shape) else 0
    read = sum(map(_size, operands))
    written = _size(instruction.shape)
    if opcode == "fusion":
        called = _called(instruction).get("calls", [""])[0]
        inside = computations.get(called)
        if inside is not None:
            read, written = _moved_by_fusion(instruction, operands, inside)
    return read + written


def _moved_by_fusion(
    instruction: _Instruction, operands: list[str], inside: _Computation
) -> tuple[int, int]:
    """Returns what a fusion reads and writes: of an operand that it only slices, the slices."""
    users: dict[str, list[_Instruction]] = collections.defaultdict(list)
    for one in inside.values():
        for name in one.operands:
            users[name].append(one)
    read = 0
    for one in inside.values():
        if one.opcode != "parameter":
            continue
        whole = _size(operands[int(one.arguments)])
        slices = [
            _size(user.shape, in_memory=False)
            for user in users[one.name]
            if user.opcode in ("dynamic-slice", "slice", "gather")
        ]
        updated = [user for user in users[one.name] if user.opcode == "dynamic-update-slice"
                   and user.operands[0] == one.name]  # fmt: skip
        if users[one.name] and len(slices) + len(updated) == len(users[one.name]):
            whole = min(whole, sum(slices))
        read += whole
    root = next((one for one in inside.values() if one.is_root), None)
    written = _size(instruction.shape)
    if root is not None and root.opcode == "dynamic-update-slice":
        update = inside[root.operands[1]].shape if root.operands[1] in inside else root.shape
        written = min(written, _size(update, in_memory=False))
    return read, written


# --- Collectives ---


def _collective(instruction: _Instruction) -> str | None:
    name = instruction.opcode.removesuffix("-start")
    return name if name in _COLLECTIVES else None


def _is_async(instruction: _Instruction) -> bool:
    return instruction.opcode.endswith("-start") and '"is_sync":true' not in instruction.rest


def _put_out(instruction: _Instruction, kind: str) -> int:
    sizes = [size for size, _ in _arrays(instruction.shape)]
    if instruction.opcode.endswith("-start") and instruction.shape.startswith("("):
        # What is started shows its operands along with its results.
        return max(sizes) if kind == "collective-permute" or len(sizes) < 4 else sum(sizes) // 2
    return sum(sizes)


# What tells collectives apart: kind, axes, group, nodes, is_async, as in `Collective`.
_Kind = tuple[str, tuple[str, ...], int, int, bool]


def _kind(kind: str, instruction: _Instruction, mesh: Mapping[str, int], per_node: int) -> _Kind:
    devices = math.prod(mesh.values())
    hops = re.search(r"source_target_pairs=\{(.*?)\}\}", instruction.rest)
    if hops:
        groups = np.array([list(map(int, pair)) for pair in _PAIR.findall(hops[0])])
    else:
        groups = _groups(instruction.rest, devices)
    places = np.unravel_index(groups, tuple(mesh.values()))
    axes = [name for name, at in zip(mesh, places, strict=True) if bool(np.any(at != at[:, :1]))]
    nodes = max(len(set(group // (per_node or devices))) for group in groups)
    group = devices if hops else groups.shape[1]
    return kind, tuple(axes), group, nodes, _is_async(instruction)


def _groups(rest: str, devices: int) -> np.ndarray:
    """Returns which devices a collective joins, by their places in the mesh, [groups, members]."""
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest):
        sizes = [(name, int(size)) for name, size in _MESH_SIZES.findall(mesh[1])]
        along = re.findall(r"'([\w.]+)'", mesh[2])
        if along:
            grid = np.arange(devices).reshape([size for _, size in sizes])
            last = [[name for name, _ in sizes].index(name) for name in along]
            members = math.prod(dict(sizes)[name] for name in along)
            return np.moveaxis(grid, last, range(-len(last), 0)).reshape(-1, members)
    elif iota := _IOTA.search(rest):
        count, members = int(iota[1]), int(iota[2])
        grid = np.arange(devices).reshape(list(map(int, iota[3].split(","))))
        order = list(map(int, iota[4].split(","))) if iota[4] else None
        return grid.transpose(order).reshape(count, members)
    elif listed := re.search(r"replica_groups=\{(\{[\d,]+\}(,\{[\d,]+\})*)\}", rest):
        return np.array([list(map(int, one.split(","))) for one in _LIST.findall(listed[1])])
    return np.arange(devices)[None]
