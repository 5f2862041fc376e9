"""Sections of a schema: what `parse` makes of any dataclasses, not only of a run's."""

import dataclasses
from typing import Any, Literal

import pytest

from aninfonce_jax.config import parse
from aninfonce_jax.config.schema import ConfigError


def field(default: Any, meaning: str = "") -> Any:
    return dataclasses.field(
        default=default, metadata={"help": meaning, "range": None, "max_items": 9}
    )


@dataclasses.dataclass(frozen=True)
class Plain:
    """A section without kinds."""

    size: int = field(3)


@dataclasses.dataclass(frozen=True)
class Circle:
    """A kind with keys."""

    kind: Literal["circle"] = field("circle")
    radius: float = field(1.0)


@dataclasses.dataclass(frozen=True)
class Polygon:
    """Two kinds with the same keys."""

    kind: Literal["triangle", "square"] = field("square")
    side: float = field(2.0)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Lists of sections."""

    shapes: tuple[Circle | Polygon, ...] = field(())
    plain: tuple[Plain, ...] = field(())
    sizes: tuple[int, ...] = field(())


def message(values):
    with pytest.raises(ConfigError) as caught:
        parse.parse_section(Drawing, values)
    return str(caught.value)


@pytest.mark.parametrize("make", [list, tuple])
def test_a_list_of_sections(make):
    shapes = make([{}, {"radius": 2}, {"kind": "triangle", "side": 4.0}])
    drawing = parse.parse_section(Drawing, {"shapes": shapes, "plain": [{"size": 5}]})
    assert drawing.shapes == (Circle(), Circle(radius=2.0), Polygon("triangle", 4.0))
    assert drawing.plain == (Plain(5),)
    # What is written down is read back.
    assert parse.parse_section(Drawing, dataclasses.asdict(drawing)) == drawing


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"shapes": 3}, "config.shapes must be a list of sections, got 3"),
        ({"shapes": {"kind": "circle"}}, "config.shapes must be a list of sections, got {'kind'"),
        ({"shapes": "circle"}, "config.shapes must be a list of sections, got 'circle'"),
        ({"shapes": [3]}, "config.shapes.0 must be a section with keys, got 3"),
        (
            {"shapes": [{}, {"kind": "star"}]},
            "config.shapes.1.kind must be one of 'circle', 'triangle', 'square'; got 'star'",
        ),
        (
            {"shapes": [{}, {"side": 1.0}]},
            "config key 'shapes.1.side' is not used by shapes.1.kind='circle', only by triangle, "
            "square; 'circle' has the keys: radius",
        ),
        (
            {"shapes": [{"kind": "square", "sied": 1.0}]},
            "unknown config key 'shapes.0.sied'; did you mean 'shapes.0.side'?",
        ),
        ({"shapes": [{"radius": "x"}]}, "config.shapes.0.radius must be of type float, got 'x'"),
        ({"plain": [{"size": 1.5}]}, "config.plain.0.size must be of type int, got 1.5"),
        ({"plain": [{}] * 10}, "config.plain must have at most 9 items, got 10"),
        ({"sizes": [{}]}, "config.sizes[0] must be of type int, got {}"),
    ],
)
def test_a_bad_list_of_sections_gets_one_line(values, expected):
    assert message(values).startswith(expected)


def test_a_list_of_sections_is_named_with_the_keys_of_its_items():
    found = {(leaf.name, leaf.kinds) for leaf in parse._leaves(Drawing, "", ())}
    assert found == {
        ("shapes", ()),
        ("shapes.N.kind", ("circle",)),
        ("shapes.N.radius", ("circle",)),
        ("shapes.N.kind", ("triangle", "square")),
        ("shapes.N.side", ("triangle", "square")),
        ("plain", ()),
        ("plain.N.size", ()),
        ("sizes", ()),
    }


def test_a_section_is_that_of_its_kind():
    shape = Circle | Polygon
    assert parse.parse_section(shape, {}, "shape.") == Circle()
    assert parse.parse_section(shape, {"kind": "square"}, "shape.") == Polygon()
    assert parse.default_section(shape, "triangle") == Polygon("triangle")
    assert list(parse.fields_used(shape, ["circle"])) == ["kind", "radius"]
    assert list(parse.fields_used(shape, ["square", "circle"])) == ["kind", "radius", "side"]
    assert parse.fields_used(shape, ["star", 3, None]) == {}


def test_flatten_names_sections_by_their_place_and_keeps_other_lists_whole():
    values = {"a": {"b": {"c": 1}, "d": [{"e": 2}, {"e": 3, "f": {}}]}, "g": (), "h": [4, 5]}
    flat = {"a.b.c": 1, "a.d.0.e": 2, "a.d.1.e": 3, "g": (), "h": [4, 5]}
    assert parse.flatten(values) == flat
