import csv
import json
import math

import pytest

from aninfonce_jax.report import paper_table, table

SHARES = {
    "classes": 0.52, "grey": 0.5, "brightness": 0.6, "contrast": 0.7, "hue": 0.8,
    "saturation": 0.9, "average": 0.7, "crop": 0.55, "blur": 0.61234,
}  # fmt: skip


READOUTS = (
    "classes", "grey", "brightness", "contrast", "hue", "saturation", "average", "crop", "blur"
)  # fmt: skip


def test_rows_are_in_per_cent_and_the_untrained_network_comes_last():
    rows = table.table_rows(
        "AnInfoNCE",
        {
            "readouts": {"backbone": SHARES, "projector": {**SHARES, "classes": 0.4}},
            "strength_r2": {"backbone": {"hue": 0.3}},
            "intervals": {
                "readouts": {"backbone": {"classes": [0.5, 0.55]}},
                "strength_r2": {"backbone": {"hue": [0.2, 0.4]}},
            },
            "untrained": {"readouts": {"backbone": {"classes": 0.2}}},
        },
    )
    names = [(row.objective, row.layer) for row in rows]
    assert names == [
        ("AnInfoNCE", "backbone"), ("AnInfoNCE", "projector"),
        ("untrained", "backbone"), ("untrained", "projector"),
    ]  # fmt: skip
    assert rows[0].shares["classes"] == pytest.approx(52.0)
    assert rows[1].shares["classes"] == pytest.approx(40.0)
    assert rows[2].shares["classes"] == pytest.approx(20.0)
    assert rows[0].shares["blur"] == pytest.approx(61.234)
    assert rows[0].strengths == {"hue": 0.3}
    assert math.isnan(rows[2].shares["average"])
    assert rows[0].intervals == {"classes": pytest.approx([50.0, 55.0])}
    assert rows[0].strength_intervals == {"hue": [0.2, 0.4]}
    assert rows[2].intervals == {}
    assert all(tuple(row.shares) == READOUTS for row in rows)
    assert [row.is_trained for row in rows] == [True, True, False, False]


def test_a_missing_average_is_that_of_the_five():
    shares = {**SHARES, "average": None}
    row = table.table_rows("a", {"readouts": {"backbone": shares}})[0]
    assert row.shares["average"] == pytest.approx(70.0)
    del shares["hue"]
    row = table.table_rows("a", {"readouts": {"backbone": shares}})[0]
    assert math.isnan(row.shares["average"])
    assert "hue" not in row.shares
    del shares["average"]
    shares["hue"] = 0.8
    row = table.table_rows("a", {"readouts": {"backbone": shares}})[0]
    assert row.shares["average"] == pytest.approx(70.0)


@pytest.mark.parametrize("nothing", [None, {}, {"backbone": None}, {"backbone": [1, 2]}, "?"])
def test_what_is_missing_is_nan(nothing):
    scores = {"readouts": nothing, "strength_r2": nothing, "intervals": nothing}
    rows = table.table_rows("a", scores | {"untrained": {"readouts": {"backbone": SHARES}}})
    assert [row.objective for row in rows] == ["a", "untrained"]
    assert all(math.isnan(rows[0].shares[key]) for key in READOUTS)
    rows = table.table_rows("a", scores)
    assert len(rows) == (isinstance(nothing, dict) and "backbone" in nothing)
    assert all(not row.shares for row in rows)


def test_layers_and_readouts_are_those_of_the_files(tmp_path):
    shares = {"louder": 0.5, "average": 0.6, "classes": 0.7}
    rows = table.table_rows("a", {"readouts": {"embedding": shares, "hidden": {"softer": 1.0}}})
    assert [row.layer for row in rows] == ["embedding", "hidden"]
    assert table.readouts_of(rows) == ["classes", "louder", "softer", "average"]
    with table.write_table(tmp_path, rows)[0].open(encoding="utf-8", newline="") as file:
        written = list(csv.reader(file))
    assert written[0][:6] == ["objective", "features", "classes", "louder", "softer", "average"]
    assert written[2][:6] == ["a", "hidden", "", "", "100.0", ""]


def test_the_files_hold_one_decimal_and_full_precision(tmp_path):
    rows = table.table_rows(
        "AnInfoNCE, no ℓ2 norm",
        {
            "readouts": {"backbone": SHARES, "projector": {}},
            "intervals": {"readouts": {"backbone": {"blur": [0.59, 0.6321]}}},
        },
    )
    paths = table.write_table(tmp_path, rows)
    assert [path.name for path in paths] == ["table1.csv", "table1.json"]
    with paths[0].open(encoding="utf-8", newline="") as file:
        written = list(csv.reader(file))
    numbers = ["52.0", "50.0", "60.0", "70.0", "80.0", "90.0", "70.0", "55.0", "61.2"]
    assert written[0][:11] == ["objective", "features", *READOUTS]
    assert written[0][11:13] == ["classes_low", "classes_high"]
    assert written[0][-2:] == ["blur_low", "blur_high"]
    assert written[1:] == [
        ["AnInfoNCE, no ℓ2 norm", "backbone", *numbers, *[""] * 16, "59.0", "63.2"],
        ["AnInfoNCE, no ℓ2 norm", "projector", *[""] * 27],
    ]
    full = json.loads(paths[1].read_text(encoding="utf-8"))
    assert full[0]["blur"] == pytest.approx(61.234, abs=1e-9)
    assert full[1]["blur"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table1.csv", "table1.json"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cifar10", "CIFAR-10"), ("tfds:cifar10", "CIFAR-10"), ("tfds:cifar10:3.0.2", "CIFAR-10"),
        ("CIFAR-10", "CIFAR-10"), ("imagenet", "ImageNet"), ("tfds:imagenet2012", "ImageNet"),
        ("imagenet-1k", "ImageNet"), ("cifar100", None), ("imagenette", None), ("mnist", None),
        ("folder", None), ("", None),
    ],
)  # fmt: skip
def test_the_paper_s_table_is_found_by_the_data_set_s_name(name, data):
    found = paper_table.paper_table(name)
    assert (found and found.data) == data


@pytest.mark.parametrize("name", ["cifar10", "imagenet"])
def test_the_paper_s_averages_are_those_of_its_columns(name):
    rows = paper_table.paper_table(name).rows
    assert len({(row.objective, row.layer) for row in rows}) == len(rows)
    for row in rows:
        mean = sum(row.shares[key] for key in table.AVERAGED) / 5
        assert row.shares["average"] == pytest.approx(mean, abs=0.051), row
