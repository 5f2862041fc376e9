"""Reading a compiled program's text."""

# ruff: noqa: E501 (instructions are lines)

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from aninfonce_jax.forecast.hlo import Collective, read_traffic

# As the TPU compiler writes it: layouts with tiles, spaces next to the units, groups as a mesh.
PROGRAM = """\
HloModule jit_run, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%x, %y)
}

%fused (param_0: f32[1024,1024], param_1: s32[]) -> f32[8,1024] {
  %param_0 = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %param_1 = s32[]{:T(128)} parameter(1)
  ROOT %slice = f32[8,1024]{1,0:T(8,128)} dynamic-slice(%param_0, %param_1, %param_1), dynamic_slice_sizes={8,1024}
}

%condition (state: (s32[], f32[1024,1024])) -> pred[] {
  %state = (s32[]{:T(128)}, f32[1024,1024]{1,0:T(8,128)}) parameter(0)
  %limit = s32[]{:T(128)} constant(10)
  %at = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %less = pred[]{:T(512)} compare(%at, %limit), direction=LT
}

%body (state: (s32[], f32[1024,1024])) -> (s32[], f32[1024,1024]) {
  %state = (s32[]{:T(128)}, f32[1024,1024]{1,0:T(8,128)}) parameter(0)
  %at = s32[]{:T(128)} get-tuple-element(%state), index=0
  %table = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(%state), index=1
  %rows = f32[8,1024]{1,0:T(8,128)} fusion(%table, %at), kind=kLoop, calls=%fused
  %near = f32[8,1024]{1,0:T(8,128)S(1)} copy(%rows)
  %all = f32[8,1024]{1,0:T(8,128)} all-reduce(%rows), channel_id=1, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, to_apply=%add
  ROOT %next = (s32[]{:T(128)}, f32[1024,1024]{1,0:T(8,128)}) tuple(%at, %table)
}

ENTRY %main (p: f32[1024,1024], n: s32[]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %n = s32[]{:T(128)} parameter(1)
  %start = (s32[]{:T(128)}, f32[1024,1024]{1,0:T(8,128)}) tuple(%n, %p)
  %loop = (s32[]{:T(128)}, f32[1024,1024]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body
  %keys = bf16[64,128]{1,0:T(8,128)(2,1)} custom-call(%p), custom_call_target="tpu_custom_call"
  %go = (bf16[64,128]{1,0:T(8,128)(2,1)}, bf16[64,128]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%keys), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %gone = bf16[64,128]{1,0:T(8,128)(2,1)} collective-permute-done(%go)
  %gather = (bf16[64,128]{1,0}, bf16[512,128]{1,0}) all-gather-start(%keys), replica_groups=[2,4]<=[8], dimensions={0}
  %gathered = bf16[512,128]{1,0} all-gather-done(%gather)
  ROOT %out = f32[1024,1024]{1,0:T(8,128)} get-tuple-element(%loop), index=1
}
"""
TABLE = 4 * 1024**2
ROWS = 4 * 8 * 1024
KEYS = 2 * 64 * 128


# Eight devices in two slices of two nodes each.
MESH = {"slices": 2, "data": 4}


def collective(kind, text=PROGRAM, mesh=MESH):
    (found,) = (one for one in read_traffic(text, mesh, 2).collectives if one.kind == kind)
    return found


def test_a_collective_in_a_loop_counts_as_often_as_the_loop_runs():
    found = collective("all-reduce")
    assert (found.count, found.bytes, found.is_async) == (10, 10 * ROWS, False)


def test_what_is_started_is_asynchronous_and_puts_out_its_result_only():
    assert collective("collective-permute") == Collective(
        "collective-permute", 1, KEYS, ("data",), 8, 1, is_async=True
    )
    assert collective("all-gather") == Collective(
        "all-gather", 1, 8 * KEYS, ("data",), 4, 2, is_async=True
    )


def test_a_gpu_that_starts_and_waits_is_blocking():
    config = 'backend_config={"collective_backend_config":{"is_sync":true}}'
    text = PROGRAM.replace("dimensions={0}", f"dimensions={{0}}, {config}")
    assert not collective("all-gather", text).is_async


def test_memory_is_what_operations_read_and_write_outside_the_chip():
    traffic = read_traffic(PROGRAM, MESH)
    # Of the table a turn reads the rows that it slices; the copy next to the units is not memory.
    turn = (ROWS + 4 + ROWS) + ROWS + 2 * ROWS
    # The comparison of the loop, with what it reads.
    condition = 4 + 4 + 1
    # What is started reads its operand, and writes what its shape names first.
    rest = (TABLE + KEYS) + 2 * KEYS + 2 * KEYS
    assert traffic.memory == 10 * (turn + condition) + rest
    assert traffic.memory_once == turn + condition + rest
    assert traffic.kernels == 1
    assert traffic.open_loops == 0


@pytest.mark.parametrize(("space", "moved"), [("S(1)", 1), ("", 2)])
def test_a_slice_that_is_fetched_ahead_moves_no_more_than_itself(space, moved):
    fetched = (
        "  %ahead = ((f32[1024,1024]{1,0:T(8,128)}), f32[8,1024]{1,0:T(8,128)" + space + "}, "
        "s32[]{:S(2)}) slice-start(%p), slice={[0:8], [0:1024]}\n  ROOT %out"
    )
    more = read_traffic(PROGRAM.replace("  ROOT %out", fetched), MESH)
    assert more.memory - read_traffic(PROGRAM, MESH).memory == moved * ROWS


def test_a_loop_of_unknown_length_counts_once():
    text = PROGRAM.replace(
        "%limit = s32[]{:T(128)} constant(10)", "%limit = s32[] get-tuple-element(%state), index=0"
    )
    traffic = read_traffic(text, MESH)
    assert traffic.open_loops == 1
    assert traffic.memory == traffic.memory_once
    assert collective("all-reduce", text).count == 1


def test_a_length_that_the_compiler_wrote_down_is_taken():
    known = 'backend_config={"known_trip_count":{"n":"7"},"known_init_step":{"init":"0"}}'
    text = PROGRAM.replace("body=%body", f"body=%body, {known}")
    assert collective("all-reduce", text).count == 7


@pytest.mark.parametrize(
    ("groups", "axes", "size", "nodes"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("data",), 2, 1),
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ("data",), 4, 2),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", ("slices",), 2, 2),
        ("replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}", (), 1, 1),
        ("replica_groups=[1,8]<=[8]", ("slices", "data"), 8, 4),
        ("replica_groups=[2,4]<=[8]", ("data",), 4, 2),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ("slices",), 2, 2),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", ("data",), 4, 2),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", ("slices",), 2, 2),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}", tuple(MESH), 8, 4),
        ("replica_groups={}", ("slices", "data"), 8, 4),
    ],
)
def test_groups_are_read_in_every_form(groups, axes, size, nodes):
    text = PROGRAM.replace("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", groups)
    found = collective("all-reduce", text)
    assert (found.axes, found.group, found.nodes) == (axes, size, nodes)


@pytest.mark.parametrize(
    ("hops", "axes", "nodes"),
    [
        ("{{0,1},{1,2},{2,3},{3,0}}", ("data",), 2),
        ("{{0,1},{1,0},{2,3},{3,2}}", ("data",), 1),
        ("{{0,4},{4,0}}", ("slices",), 2),
        ("{{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}", ("slices", "data"), 2),
    ],
)
def test_a_hop_goes_along_the_axes_that_it_changes(hops, axes, nodes):
    text = PROGRAM.replace("source_target_pairs={{0,1},{1,0}}", f"source_target_pairs={hops}")
    found = collective("collective-permute", text)
    assert (found.axes, found.group, found.nodes) == (axes, 8, nodes)


def test_the_axes_of_a_program_of_two_axes_are_those_that_were_written():
    """What a compiler at hand makes of two means, one along each axis."""
    mesh = jax.make_mesh((2, 4), tuple(MESH), axis_types=(AxisType.Auto,) * 2)

    def means(x):
        return jax.lax.pmean(x[:1], "slices"), jax.lax.pmax(x, "data")

    spread = jax.shard_map(
        means, mesh=mesh, in_specs=P(("slices", "data")), out_specs=(P("data"), P("slices"))
    )
    text = jax.jit(spread).lower(jnp.zeros((16, 3))).compile().as_text()
    found = read_traffic(text, mesh.shape).collectives
    assert {(one.axes, one.group, one.bytes) for one in found} == {
        (("slices",), 2, 12),
        (("data",), 4, 24),
    }
