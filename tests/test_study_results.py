"""Results: tidy rows, the same in CSV and Parquet, means with honest intervals, and ranks."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from small_studies import job as make_job
from small_studies import small_study, write_study
from thoroughness import examples

import pixelcert as pc
from pixelcert.study.settings import Settings
from pixelcert.study.store import Store
from pixelcert.study.tables import (
    MEAN,
    POINT,
    ROW,
    Line,
    Means,
    mean_and_half_width,
    mean_in_words,
    rows,
    summarise,
    write_tables,
)

ASKED: dict[str, Any] = {
    "methods": ["ixg", "few masks"],
    "method": {"few masks": {"method": "rise", "masks": 4}},
    "presets": ["default", "reference"],
    "tau": [0.6, 0.75],
    "deletion": [0.6],
    "images": {"folder": "photos", "count": 3},
    "grids": {"count": 2},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> pc.Study:
    """Finished."""
    study = small_study(tmp_path_factory.mktemp("results"), **ASKED)
    tally = study.run()
    assert (tally.done, tally.failures) == (20, {})
    return study


@pytest.fixture(scope="module")
def table(study) -> list[dict[str, Any]]:
    return list(rows(study.jobs(), study.store))


def a_row(value: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    """A row as the store gives it."""
    row = {name: f"a {name}" for name in ROW}
    numbers = {"sigma": 0.15, "n": 40, "tau": 0.6, "radius": 0.04, "level": 50, "target": 3, "cell": 0}
    return {**row, **numbers, "value": value, "low": None, "high": None, **changes}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_have_every_column_and_nothing_else(table):
    assert all(row.keys() == set(ROW) for row in table)


def test_there_is_one_row_for_every_scene_setting_and_metric(table):
    names = [tuple(row[name] for name in (*POINT, "name")) for row in table]
    assert len(set(names)) == len(names)
    certified = [row for row in table if row["metric"] == "certified"]
    assert len(certified) == 2 * 2 * 2 * 2 * 5  # methods, presets, τ, levels, scenes


def test_rows_say_what_the_measures_say_in_the_order_of_the_jobs(study, table):
    left = iter(table)
    for job in study.jobs():
        measures = study.store.load_measures(job)
        for measured in measures["rows"]:
            row = next(left)
            assert {name: row[name] for name in measured} == measured
            assert (row["key"], row["name"], row["scene"]) == (job.key, job.scene.name, job.scene.kind)
            assert (row["model"], row["method"], row["layer"]) == ("tiny", job.method, "input")
            assert (row["preset"], row["sigma"], row["n"]) == (job.preset, 0.15, 40)
            assert (row["target"], row["cell"]) == (measures["target"], job.scene.cell)
            assert row["target_name"] == f"class {row['target']}, of ten"
            assert row["radius"] == (None if row["tau"] is None else measures["radius"][str(row["tau"])])
    assert next(left, None) is None


def test_variant_keeps_its_name_and_tells_its_family_and_parameters(table):
    row = next(row for row in table if row["method"] == "few masks")
    assert row["family"] == "perturbation"
    assert json.loads(row["params"]) == {**pc.METHODS["rise"].parameters(), "masks": 4}


def test_unfinished_and_damaged_jobs_have_no_rows(study, tmp_path, table):
    part = small_study(tmp_path, **ASKED)
    part.resolve()
    assert list(rows(part.jobs(), part.store)) == []
    first, second, *_ = part.jobs()
    worker = part.worker(part.resolve())
    worker.do(first)
    worker.do(second)
    assert {row["name"] for row in rows(part.jobs(), part.store)} == {first.scene.name, second.scene.name}
    part.store.measures_file(first).write_bytes(b"{")
    assert {row["name"] for row in rows(part.jobs(), part.store)} == {second.scene.name}


def test_undefined_localisation_may_stand_for_a_number_and_nothing_else_may(study, table):
    told = list(rows(study.jobs(), study.store, undefined=0))
    changed = [(one, other) for one, other in zip(table, told, strict=True) if one != other]
    undefined = [row for row in table if row["metric"] == "certified_grid_pg" and row["value"] is None]
    assert [one for one, _ in changed] == undefined
    assert len(undefined) >= 16  # 0.75 is out of reach
    for one, other in changed:
        assert other == {**one, "value": 0}


def test_other_measures_that_are_undefined_stay_so(tmp_path):
    store = Store(tmp_path, Settings(models="resnet18"))
    missing = {"tau": None, "level": None, "value": None, "low": None, "high": None}
    measured = [{"metric": metric, **missing} for metric in ("grid_pg", "certified_grid_pg")]
    store.save_measures(make_job(), {"target": 3, "target_name": "cat", "radius": {}, "rows": measured})
    assert [row["value"] for row in rows([make_job()], store, undefined=0)] == [None, 0]


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "columns"), [("rows", ROW), ("means", MEAN)])
def test_csv_and_parquet_say_the_same(study, name, columns):
    study.results()
    folder = study.folder / "results"
    texts = read_csv(folder / f"{name}.csv")
    values = pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pylist()
    assert len(texts) == len(values) > 0
    for text, value in zip(texts, values, strict=True):
        assert tuple(text) == tuple(value) == columns
        for column in columns:
            if value[column] is None:
                assert text[column] == ""
            elif isinstance(value[column], str):
                assert text[column] == value[column]
            else:
                assert float(text[column]) == value[column]


def test_parquet_has_numbers_as_numbers_even_where_they_are_missing(study):
    study.results()
    types = {
        field.name: str(field.type) for field in pyarrow.parquet.read_schema(study.folder / "results/rows.parquet")
    }
    texts = {"model", "method", "family", "layer", "params", "preset", "scene", "metric", "name", "target_name", "key"}
    assert {name for name, kind in types.items() if kind == "string"} == texts
    assert {name for name, kind in types.items() if kind == "int64"} == {"n", "target", "cell"}
    assert {name for name, kind in types.items() if kind == "double"} == set(ROW) - texts - {"n", "target", "cell"}


def test_tables_hold_the_rows_and_the_means_that_are_returned(study, table):
    means = study.results()
    folder = study.folder / "results"
    assert pyarrow.parquet.read_table(folder / "rows.parquet").to_pylist() == [
        {name: row[name] for name in ROW} for row in table
    ]
    assert pyarrow.parquet.read_table(folder / "means.parquet").to_pylist() == means


def test_equal_rows_make_equal_files(table, tmp_path):
    for name in ("one", "two"):
        write_tables(iter(table), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["means.csv", "means.parquet", "rows.csv", "rows.parquet"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_tables_of_many_rows_are_whole(tmp_path, monkeypatch):
    """They are written piece by piece."""
    monkeypatch.setattr("pixelcert.study.tables._CHUNK", 7)
    write_tables((a_row(float(number), name=str(number)) for number in range(20)), tmp_path)
    assert [float(row["value"]) for row in read_csv(tmp_path / "rows.csv")] == list(range(20))
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").column("value").to_pylist() == list(range(20))
    assert pyarrow.parquet.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 3


def test_tables_of_nothing_have_their_columns(tmp_path):
    assert write_tables([], tmp_path) == []
    assert (tmp_path / "rows.csv").read_text() == ",".join(ROW) + "\n"
    assert pyarrow.parquet.read_table(tmp_path / "means.parquet").column_names == list(MEAN)


def test_names_with_commas_quotes_newlines_and_accents_survive(tmp_path):
    name = 'a, "b"\nσ ünd 小猫'
    write_tables([a_row(name=name)], tmp_path)
    assert read_csv(tmp_path / "rows.csv")[0]["name"] == name
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").column("name").to_pylist() == [name]


def test_name_of_a_file_that_is_not_unicode_does_not_end_the_tables(tmp_path):
    """Such a photograph is chosen and certified like any other."""
    write_tables([a_row(name="cat.png"), a_row(name="caf\udce9.png")], tmp_path)
    assert len(read_csv(tmp_path / "rows.csv")) == 2


def test_failure_while_writing_leaves_the_old_tables_and_no_litter(tmp_path):
    write_tables([a_row()], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken() -> Any:
        yield a_row(2.0)
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        write_tables(broken(), tmp_path)
    with pytest.raises(Exception, match="text"):
        write_tables([a_row(3.0, n="text")], tmp_path)  # which Parquet refuses when it is written, at the very end
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# ── Means ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_means_are_numpys_and_intervals_students(study, table):
    for row in study.results():
        same = [one for one in table if all(one[name] == row[name] for name in POINT)]
        values = [one["value"] for one in same if one["value"] is not None]
        assert (row["count"], row["defined"]) == (len(same), len(values))
        assert row["count"] == (3 if row["scene"] == "image" else 2)
        if not values:
            assert (row["mean"], row["mean_low"], row["mean_high"]) == (None, None, None)
            continue
        assert row["mean"] == pytest.approx(np.mean(values), rel=1e-12)
        if len(values) == 1:
            assert (row["mean_low"], row["mean_high"]) == (None, None)
        elif np.ptp(values) > 0:
            low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
            assert (row["mean_low"], row["mean_high"]) == pytest.approx((low, high), rel=1e-9)
        else:
            assert row["mean_low"] == row["mean_high"] == row["mean"]


def test_certified_intervals_are_averaged_end_by_end(study, table):
    found = 0
    for row in study.results():
        same = [one for one in table if all(one[name] == row[name] for name in POINT)]
        for end in ("low", "high"):
            ends = [one[end] for one in same if one[end] is not None and one["value"] is not None]
            assert row[end] == (pytest.approx(np.mean(ends), rel=1e-12) if ends else None)
            found += bool(ends)
        if row["mean"] is not None and row["low"] is not None:
            assert row["low"] <= row["mean"] + 1e-12
            assert row["mean"] <= row["high"] + 1e-12
    assert found > 8


def test_certified_intervals_of_undefined_values_are_left_out_with_them():
    means = Means()
    for value, low, high in ((1.0, 0.9, 1.0), (None, 0.0, 0.0)):
        means.add({**a_row(value), "low": low, "high": high})
    (row,) = means.table()
    assert (row["mean"], row["low"], row["high"]) == (1.0, 0.9, 1.0)


def test_means_are_over_scenes_of_one_kind_and_all_of_them(study):
    means = study.results()
    for row in means:
        assert (row["scene"] == "grid") if "grid_pg" in row["metric"] else True
    kinds = {(row["scene"], row["count"]) for row in means}
    assert kinds == {("image", 3), ("grid", 2)}


def test_undefined_values_are_left_out_and_counted():
    means = Means()
    for value in (0.5, None, 0.7, None):
        means.add(a_row(value))
    (row,) = means.table()
    assert (row["count"], row["defined"]) == (4, 2)
    assert row["mean"] == pytest.approx(0.6)


def test_convention_of_the_paper_counts_undefined_localisation_as_nought(study):
    plain, papers = study.results(), study.results(undefined=0)
    for one, other in zip(plain, papers, strict=True):
        if one["metric"] != "certified_grid_pg":
            assert one == other
            continue
        assert other["defined"] == other["count"]
        assert other["mean"] == pytest.approx((one["mean"] or 0) * one["defined"] / one["count"])
    assert any(one["defined"] == 0 for one in plain)
    study.results()


def test_mean_of_one_value_has_no_interval_and_of_none_no_mean():
    assert mean_and_half_width([0.25]) == (0.25, None)
    assert mean_and_half_width([]) == (None, None)
    assert mean_and_half_width([2.0] * 5) == (2.0, 0.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.floats(0.5, 0.999))
@settings(deadline=None, max_examples=examples(60))
def test_half_width_is_students(values, confidence):
    mean, half = mean_and_half_width(values, confidence)
    quantile = scipy.stats.t.ppf((1 + confidence) / 2, len(values) - 1)
    assert mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert half == pytest.approx(quantile * np.std(values, ddof=1) / math.sqrt(len(values)), rel=1e-6, abs=1e-9)


numbers = st.none() | st.floats(0, 100)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=examples(60))
def test_means_do_not_depend_on_the_order_of_the_images(triples, shuffle: random.Random):
    def table_of(order: list[Any]) -> list[dict[str, Any]]:
        means = Means()
        for value, low, high in order:
            means.add(a_row(value, low=low, high=high))
        return means.table()

    assert table_of(shuffle.sample(triples, len(triples))) == table_of(triples)


def test_every_column_of_a_setting_keeps_means_apart():
    for name in POINT:
        means = Means()
        means.add(a_row(1.0))
        means.add(a_row(3.0, **{name: 0.9 if isinstance(a_row()[name], float) else "other"}))
        assert [row["mean"] for row in means.table()] == [1, 3], name


def test_columns_that_name_one_scene_do_not():
    means = Means()
    means.add(a_row(1.0))
    means.add(a_row(3.0, name="other.png", target=4, target_name="dog", cell=2, key="ef"))
    (row,) = means.table()
    assert row["mean"] == 2
    assert row.keys() == set(MEAN)


# ── Summary ───────────────────────────────────────────────────────────────────────────────────────────────────────

SCENES = {"certified": "image", "deletion_area": "image", "certified_grid_pg": "grid"}
AT = {"sigma": 0.15, "n": 40, "preset": "default", "tau": 0.6}


def means_of(methods: dict[str, dict[str, float | None]], **changes: Any) -> list[dict[str, Any]]:
    """Rows of means, by method and metric."""
    common = {"model": "tiny", "layer": "input", "family": "activation", **AT, "count": 3, "defined": 3, **changes}
    levels = {"deletion_area": None}
    return [
        {
            "level": levels.get(metric, 50),
            **common,
            "method": method,
            "metric": metric,
            "scene": SCENES[metric],
            "mean": mean,
        }
        for method, found in methods.items()
        for metric, mean in found.items()
    ]


def ranks(lines: list[Line]) -> dict[str, dict[str, int]]:
    return {line.method: line.ranks for line in lines}


def test_best_is_first_more_certified_and_less_confidence_left():
    means = means_of(
        {
            "poor": {"certified": 10.0, "certified_grid_pg": 0.2, "deletion_area": 0.9},
            "good": {"certified": 90.0, "certified_grid_pg": 0.8, "deletion_area": 0.1},
            "fair": {"certified": 50.0, "certified_grid_pg": 0.5, "deletion_area": 0.5},
        }
    )
    lines = summarise(means, level=50, **AT)
    assert [line.method for line in lines] == ["good", "fair", "poor"]
    assert [line.mean_rank for line in lines] == [1, 2, 3]
    assert ranks(lines)["poor"] == {"certified": 3, "certified_grid_pg": 3, "deletion_area": 3}
    assert lines[0].means["certified"]["mean"] == 90
    assert lines[0].family == "activation"


def test_methods_that_tie_share_the_better_rank_and_the_next_is_skipped():
    lines = summarise(
        means_of({name: {"certified": mean} for name, mean in zip("abcd", (7.0, 9.0, 7.0, 1.0), strict=True)}),
        level=50,
        **AT,
    )
    assert {method: rank["certified"] for method, rank in ranks(lines).items()} == {"b": 1, "a": 2, "c": 2, "d": 4}
    assert [line.method for line in lines] == ["b", "a", "c", "d"], "ties keep the order of the study"


def test_method_whose_value_is_undefined_everywhere_comes_last():
    lines = summarise(
        means_of(
            {
                "silent": {"certified": None, "certified_grid_pg": None},
                "local": {"certified": 5.0, "certified_grid_pg": 0.9},
                "blind": {"certified": 6.0, "certified_grid_pg": None},
            }
        ),
        level=50,
        **AT,
    )
    assert ranks(lines) == {
        "blind": {"certified": 1, "certified_grid_pg": 2},
        "local": {"certified": 2, "certified_grid_pg": 1},
        "silent": {"certified": 3, "certified_grid_pg": 2},
    }
    assert [line.method for line in lines] == ["local", "blind", "silent"]
    assert [line.mean_rank for line in lines] == [1.5, 1.5, 2.5]


def test_method_that_was_not_measured_has_no_rank_there():
    lines = summarise(
        means_of({"a": {"certified": 5.0}, "b": {"certified": 6.0, "deletion_area": 1.0}}), level=50, **AT
    )
    assert ranks(lines) == {"b": {"certified": 1, "deletion_area": 1}, "a": {"certified": 2}}


def test_models_and_layers_are_ranked_apart():
    means = [
        *means_of({"a": {"certified": 1.0}, "b": {"certified": 2.0}}),
        *means_of({"a": {"certified": 9.0}, "b": {"certified": 3.0}}, layer="final"),
        *means_of({"a": {"certified": 4.0}}, model="other"),
    ]
    lines = summarise(means, level=50, **AT)
    assert [(line.model, line.layer, line.method, line.ranks["certified"]) for line in lines] == [
        ("tiny", "input", "b", 1),
        ("tiny", "input", "a", 2),
        ("tiny", "final", "a", 1),
        ("tiny", "final", "b", 2),
        ("other", "input", "a", 1),
    ]


def test_summary_is_of_one_point_of_the_study_alone():
    here = means_of({"a": {"certified": 1.0, "deletion_area": 0.5}})
    elsewhere = [
        row
        for change in ({"sigma": 0.25}, {"n": 100}, {"preset": "reference"}, {"tau": 0.75}, {"level": 10})
        for row in means_of({"a": {"certified": 99.0}, "b": {"certified": 99.0}}, **change)
    ]
    (line,) = summarise([*elsewhere, *here, *elsewhere], level=50, **AT)
    assert (line.method, line.means["certified"]["mean"], line.means["deletion_area"]["mean"]) == ("a", 1, 0.5)


def test_certified_pixels_of_grids_do_not_stand_for_those_of_images():
    grids = [{**row, "scene": "grid"} for row in means_of({"a": {"certified": 99.0}})]
    (line,) = summarise(means_of({"a": {"certified": 1.0}}) + grids, level=50, **AT)
    assert line.means["certified"]["mean"] == 1


def test_summary_of_a_study_has_a_line_per_method(study):
    point = study.point()
    lines = summarise(study.results(), **point)
    assert {line.method for line in lines} == {"ixg", "few masks"}
    for line in lines:
        assert line.means.keys() == {"certified", "certified_grid_pg", "deletion_area"}
        assert all(row["tau"] == 0.6 for row in line.means.values())


# ── A study's own ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_of_a_study_that_was_never_run_are_refused(tmp_path):
    study = small_study(tmp_path)
    with pytest.raises(pc.ArgumentError, match="holds no study yet: `pixelcert study run` fills it"):
        study.results()
    assert not study.folder.exists()


def test_results_of_a_study_that_was_only_planned_are_refused_and_replace_no_tables(tmp_path):
    """Also after a change of which nothing has been run yet, such as another version of pixelcert."""
    study = small_study(tmp_path)
    study.run()
    study.results()
    before = (study.folder / "results" / "rows.csv").read_bytes()
    changed = small_study(tmp_path, sigma=0.25)
    changed.resolve()
    with pytest.raises(pc.ArgumentError, match="pixelcert study run"):
        changed.results()
    assert (study.folder / "results" / "rows.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sigma": 0.25}, "sigma"),
        ({"tau": [0.6, 0.7]}, "tau"),
        ({"images": {"folder": "photos", "count": 2}}, "images"),
        ({"grids": {"count": 1}, "alpha": 0.01}, "alpha, grids"),
    ],
    ids=["sigma", "tau", "images", "two"],
)
def test_results_of_a_file_that_changed_since_the_run_are_refused_by_name(tmp_path, changes, named):
    study = small_study(tmp_path)
    study.run()
    small_study(tmp_path).results()
    with pytest.raises(
        pc.ArgumentError, match=rf"^{named} changed in the study file .*use `pixelcert study run` to do what"
    ):
        small_study(tmp_path, **changes).results()
    small_study(tmp_path, **changes).run()
    small_study(tmp_path, **changes).results()


def test_file_that_is_only_written_otherwise_has_not_changed(tmp_path):
    small_study(tmp_path).run()
    written = write_study(tmp_path / "study.toml", models="tiny", tau=0.6, levels=[50.0, 10.0], alpha=1e-3)
    assert pc.Study.open(written).results()


def test_results_come_without_loading_a_model_or_a_photograph(tmp_path, monkeypatch):
    small_study(tmp_path).run()
    (tmp_path / "photos").rename(tmp_path / "gone")
    monkeypatch.setattr("pixelcert.study.inventory.load_model", lambda *_: pytest.fail("a model was loaded"))
    assert pc.Study.open(tmp_path / "study.toml").results()


def test_results_need_the_measures_alone(tmp_path):
    study = small_study(tmp_path)
    study.run()
    expected = study.results()
    (tmp_path / "study" / "votes").rename(tmp_path / "elsewhere")
    assert study.results() == expected
    assert not any(map(study.store.done, study.jobs())), "to run the study again, the votes are needed"


def test_folder_of_a_study_is_beside_its_file_or_where_it_is_told(tmp_path):
    file = write_study(tmp_path / "mine.toml")
    assert pc.Study.open(file).folder == tmp_path / "mine"
    assert pc.Study.open(str(file), "elsewhere").folder == Path("elsewhere")


def test_folder_of_a_study_whose_file_has_no_suffix_is_not_the_file(tmp_path):
    file = write_study(tmp_path / "mine")
    assert pc.Study.open(file).folder != file


def test_setting_is_the_first_of_each_axis_and_the_middle_level(tmp_path):
    study = small_study(
        tmp_path, sigma=[0.25, 0.15], n=[90, 40], presets=["reference", "default"], levels=[5, 50, 25], tau=[0.7, 0.6]
    )
    assert study.point() == {"sigma": 0.25, "n": 90, "preset": "reference", "tau": 0.7, "level": 25}


@pytest.mark.parametrize(
    ("tau", "deletion", "expected"), [([0.6, 0.75], None, 0.75), ([0.6, 0.7], [0.7], 0.7), ([0.7, 0.6], [], 0.7)]
)
def test_setting_has_a_tau_at_which_deletion_was_measured_if_there_is_one(tmp_path, tau, deletion, expected):
    assert small_study(tmp_path, tau=tau, deletion=deletion).point()["tau"] == expected


def test_setting_takes_what_is_asked_for(tmp_path):
    study = small_study(tmp_path, sigma=[0.25, 0.15], n=[90, 40], presets=["reference", "default"], tau=[0.7, 0.6])
    asked = {"sigma": 0.15, "n": 40, "preset": "default", "tau": 0.6, "level": 50}
    assert study.point(**asked) == asked
    assert study.point(sigma=None, tau=0.6)["sigma"] == 0.25


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ({"sigma": 0.3}, r"sigma=0\.3 .*\[0\.15\]"),
        ({"n": 41}, r"n=41 .*\[40\]"),
        ({"preset": "mine"}, r"preset=mine .*\['default'\]"),
        ({"tau": 0.75}, r"tau=0\.75 .*\[0\.6\]"),
        ({"level": 25}, r"level=25 .*\[10, 50\]"),
    ],
    ids=str,
)
def test_setting_that_the_study_does_not_have_is_refused_with_those_it_has(tmp_path, asked, known):
    with pytest.raises(pc.ArgumentError, match=known):
        small_study(tmp_path).point(**asked)


def test_mean_in_words_says_of_how_many_of_the_planned_scenes_it_is():
    row = {"mean": 5.0, "mean_high": 6.25, "defined": 3, "planned": 8}
    assert mean_in_words(row, "certified") == "5.0 ± 1.2 (3 of 8)"
    assert mean_in_words({**row, "defined": 8, "mean_high": None}, "deletion_area") == "5.000"
    assert mean_in_words({**row, "mean": None}, "certified") == "undefined"
