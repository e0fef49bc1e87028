"""`pixelcert study`, from an empty folder to a table of methods."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest
from command_line import Run, interrupted, run_here, stopping_after
from PIL import Image
from small_studies import photographs, tiny, write_study

import pixelcert as pc
from pixelcert.study.templates import template


@pytest.fixture
def study(pixelcert) -> Callable[..., Run]:
    """Runs `pixelcert study` in this process, in an empty folder."""
    return lambda *arguments: pixelcert("study", *arguments)


@pytest.fixture
def small(study, tmp_path) -> Callable[..., Run]:
    """The same, with small.toml: two images and a grid by two methods."""
    photographs(tmp_path / "photos")
    write(tmp_path)
    return study


class Ran(NamedTuple):
    """A run of small.toml, and the folder that it left."""

    folder: Path
    run: Run


@pytest.fixture(scope="session")
def ran(tmp_path_factory) -> Ran:
    folder = tmp_path_factory.mktemp("ran")
    photographs(folder / "photos")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return Ran(folder, run_here("study", "run", "small.toml"))


@pytest.fixture
def done(study, ran, tmp_path) -> Callable[..., Run]:
    """`pixelcert study` in a folder where small.toml has been run."""
    shutil.copytree(ran.folder, tmp_path, dirs_exist_ok=True)
    return study


def write(folder: Path, **changes: Any) -> None:
    asked = {
        "methods": ["ixg", "rise"],
        "method": {"rise": {"masks": 4}},
        "images": {"folder": "photos", "count": 2},
        "grids": {"count": 1},
    }
    write_study(folder / "small.toml", **{**asked, **changes})


def assert_refused(run: Run, *words: str) -> None:
    assert run.code == 1
    assert "error: " in run.err
    assert "Traceback" not in run.err
    for word in words:
        assert word in run.said


def table_rows(run: Run) -> dict[str, list[str]]:
    """The lines of the printed tables, by their first cell."""
    lines = [line.strip("│ ").split("│") for line in run.out.splitlines() if line.startswith("│")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


# ── From beginning to end ─────────────────────────────────────────────────────────────────────────────────────────


def test_embedded_model_from_init_to_results(study, tmp_path, embedded):
    assert study("init").code == 0
    text = Path("study.toml").read_text()
    assert text == template("demo").decode()
    (start, end) = (text.index("methods = ["), text.index("layers = "))
    text = text[:start] + 'methods = ["grad_cam"]\n' + text[end:]
    for old, new in {
        'layers = ["input", "final"]': 'layers = "final"',
        "sigma = [0.15, 0.25]": "sigma = 0.15",
        "n = 50 ": "n = 45 ",
        "count = 2 ": "count = 1 ",
        "cell = 112": "cell = 32",
        "size = 112": "size = 32",
    }.items():
        assert old in text
        text = text.replace(old, new)
    text = text.replace("[method.intgrad]\nsteps = 4", "").replace("[method.rise]\nmasks = 24", "")
    text = text.partition("[method.occlusion")[0]
    Path("study.toml").write_text(text)
    plan = study("plan", "study.toml", "--no-calibrate")
    assert plan.code == 0, plan.said
    assert "2 jobs, 0 done" in plan.said
    run = study("run", "study.toml")
    assert run.code == 0, run.said
    assert "2 of 2 jobs are done, 2 by this run" in run.said
    results = study("results", "study.toml")
    assert results.code == 0
    assert "grad_cam" in table_rows(results)
    rows = pyarrow.parquet.read_table(tmp_path / "study" / "results" / "rows.parquet").to_pylist()
    assert {(row["method"], row["scene"]) for row in rows} == {("grad_cam", "image"), ("grad_cam", "grid")}
    assert all(row["model"] == "efficientnet_lite0" for row in rows)


# ── init ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_init_writes_the_preset_and_says_what_comes_next(study):
    run = study("init", "mine.toml", "--preset", "paper")
    assert run.code == 0
    assert Path("mine.toml").read_bytes() == template("paper")
    assert "pixelcert study plan mine.toml" in run.said
    assert "pixelcert study run mine.toml" in run.said


def test_init_does_not_overwrite(study):
    Path("study.toml").write_text("mine")
    assert_refused(study("init"), "study.toml exists already")
    assert Path("study.toml").read_text() == "mine"


def test_init_of_an_unknown_preset_writes_nothing(study):
    assert_refused(study("init", "--preset", "mine"), "'mine'", "demo, paper")
    assert not Path("study.toml").exists()


# ── plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plan_shows_jobs_network_runs_time_and_room(small):
    run = small("plan", "small.toml")
    assert run.code == 0, run.said
    assert "6 jobs, 0 done" in run.out
    rows = table_rows(run)
    left, runs, image, grid, whole = rows["ixg, input"]
    assert (left, runs) == ("3", str(3 * 40))
    assert rows["rise, input"][:2] == ["3", str(3 * 40 * pc.method("rise", tiny(), "input", masks=4).passes)]
    for seconds in (image, grid, whole):
        assert seconds.endswith(" s")
    assert "on this machine" in run.out
    assert "New votes will take about" in run.out
    assert not list(Path("small").rglob("*.safetensors")), "nothing is sampled"


def test_plan_without_calibration_explains_nothing(small, monkeypatch):
    monkeypatch.setattr("pixelcert.study.runner.explain_copies", lambda *_: pytest.fail("explained"))
    run = small("plan", "small.toml", "--no-calibrate")
    assert run.code == 0
    assert table_rows(run)["ixg, input"] == ["3", "120", "unknown", "unknown", "unknown"]
    assert "on this machine" not in run.out


def test_plan_after_a_run_says_that_all_is_done_and_after_a_change_what_is_left(done, tmp_path):
    run = done("plan", "small.toml", "--no-calibrate")
    assert run.code == 0
    assert "6 jobs, 6 done" in run.out
    assert table_rows(run) == {}
    assert "New votes" not in run.out
    write(tmp_path, images={"folder": "photos", "count": 4})
    run = done("plan", "small.toml", "--no-calibrate")
    assert "10 jobs, 6 done" in run.out
    assert table_rows(run)["ixg, input"][0] == "2"


def test_plan_tells_which_tau_cannot_be_reached(small, tmp_path):
    write(tmp_path, tau=[0.6, 0.75])
    run = small("plan", "small.toml")
    assert "note: n = 40 can certify nothing at tau = 0.75 (preset default)" in run.said
    assert "Raise n to 51" in run.said  # for the grid of 48 × 48


def test_plan_tells_what_cannot_be_done_and_why(small, tmp_path):
    crooked = {"crooked": {"model": "small_studies:crooked"}, "tiny": {"model": "small_studies:tiny"}}
    write(tmp_path, models=["tiny", "crooked"], model=crooked, methods=["cam"], method=None)
    run = small("plan", "small.toml")
    assert run.code == 0
    assert "cannot be done: cam at input of crooked" in run.said
    assert run.said.count("use grad_cam") == 1
    assert run.out.count("cannot be done") == 1, "and of the other model it can"


# ── run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_run_does_every_job_and_sums_up_each_method(ran):
    folder, run = ran
    assert run.code == 0, run.said
    assert "6 of 6 jobs are done, 6 by this run" in run.err
    rows = table_rows(run)
    assert rows.keys() == {"ixg", "rise"}
    means = pyarrow.parquet.read_table(folder / "small" / "results" / "means.parquet").to_pylist()
    for method, (certified, localised, deletion, rank) in rows.items():
        for cell, metric, scene, level, digits in (
            (certified, "certified", "image", 50, 1),
            (localised, "certified_grid_pg", "grid", 50, 3),
            (deletion, "deletion_area", "image", None, 3),
        ):
            (row,) = (
                row
                for row in means
                if (row["method"], row["metric"], row["scene"], row["level"]) == (method, metric, scene, level)
            )
            if row["mean"] is None:
                assert cell == "undefined"
            else:
                assert cell.startswith(f"{row['mean']:.{digits}f}")
                assert "#" in cell
                assert ("±" in cell) == (row["count"] > 1)
        assert 1 <= float(rank) <= 2
    for words in ("σ = 0.15", "n = 40", "preset = default", "τ = 0.6", "K = 50 %", "less is more faithful"):
        assert words in run.said
    for name in ("rows.csv", "rows.parquet", "means.csv", "means.parquet"):
        assert (folder / "small" / "results" / name).exists()


@pytest.mark.usefixtures("no_sampling")
def test_second_run_does_nothing_and_says_the_same(done, ran):
    again = done("run", "small.toml")
    assert again.code == 0
    assert "6 of 6 jobs are done, 0 by this run" in again.err
    assert again.out == ran.run.out


def test_method_that_cannot_explain_a_model_fails_and_all_others_are_finished(small, tmp_path):
    crooked = {"crooked": {"model": "small_studies:crooked"}}
    write(tmp_path, models=["crooked"], model=crooked, methods=["cam", "ixg"], method=None)
    run = small("run", "small.toml")
    assert run.code == 1
    assert "3 of 6 jobs are done, 3 by this run" in run.said
    assert "failed: crooked cam input" in run.said
    assert "ModelError: crooked has" in run.said
    assert run.said.count("use grad_cam") == 1, "each cause once"
    assert "small/failures" in run.said
    assert len(list(Path("small/failures").glob("*.json"))) == 3
    assert table_rows(run).keys() == {"ixg"}
    again = small("run", "small.toml", "--retries", 0)
    assert again.code == 1
    assert "3 of 6 jobs are done, 0 by this run" in again.said


def test_run_notes_a_tau_out_of_reach_and_shows_nought_there(small, tmp_path):
    write(tmp_path, tau=[0.6, 0.75], deletion=[0.6])
    run = small("run", "small.toml")
    assert run.code == 0
    assert "note: n = 40 can certify nothing at tau = 0.75" in run.said
    shown = small("results", "small.toml", "--tau", 0.75)
    certified, localised, deletion, _ = table_rows(shown)["ixg"]
    assert certified.startswith("0.0")
    assert localised == "undefined"
    assert deletion == "not measured"


def test_n_that_reaches_nothing_is_refused_with_the_n_that_does(small, tmp_path):
    write(tmp_path, n=20)
    assert_refused(small("run", "small.toml"), "n=20", "raise n to at least 26")
    assert_refused(small("plan", "small.toml"), "n=20")


def test_warnings_of_the_library_are_told_once(small, tmp_path):
    write(tmp_path, methods=["grad"], layers=["final"], method=None)
    run = small("run", "small.toml")
    assert run.code == 0
    assert run.said.count("every map was constant at its threshold") == 1
    assert "note: tiny grad final" in run.said


def test_all_that_the_library_warned_of_in_a_job_is_told(small, tmp_path):
    write(tmp_path, methods=["grad"], layers=["final"], method=None, grids={"count": 0})
    for number in range(4):
        with Image.open(f"photos/{number}.png") as photo:
            photo.convert("L").save(f"photos/{number}.png")
    small("plan", "small.toml", "--no-calibrate")  # chooses the photographs, and warns of each
    run = small("run", "small.toml")
    assert "is grey; converted to RGB" in run.said
    assert "every map was constant at its threshold" in run.said


def test_damaged_files_are_found_told_and_made_again(done):
    file = next(Path("small/votes").rglob("*.safetensors"))
    before = file.read_bytes()
    file.write_bytes(before[:-1])
    assert "damaged" not in done("run", "small.toml", "--no-verify").said
    run = done("run", "small.toml")
    assert run.code == 0
    assert "1 files were damaged and will be made again" in run.said
    assert "6 of 6 jobs are done, 1 by this run" in run.said
    assert file.read_bytes() == before


def test_ctrl_c_leaves_with_its_own_code_and_the_same_command_goes_on(small):
    with stopping_after(2, KeyboardInterrupt()):
        run = small("run", "small.toml")
    assert run.code == 130
    assert "stopped; finished jobs are saved" in run.said
    again = small("run", "small.toml")
    assert again.code == 0
    assert "6 of 6 jobs are done, 4 by this run" in again.said


def test_folder_may_be_named(small, tmp_path):
    write(tmp_path, methods=["ixg"], method=None, images={"folder": "photos", "count": 1}, grids=None)
    assert small("run", "small.toml", "-o", "elsewhere").code == 0
    assert not Path("small").exists()
    assert small("results", "small.toml", "--out", "elsewhere").code == 0
    assert_refused(small("results", "small.toml"), "small holds no study yet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ray", "auto", "--cpus", "-1"), ("cpus=-1", "negative")),
        (("--ray", "auto", "--workers", "0"), ("workers=0",)),
        (("--device", "abacus"), ("abacus",)),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(small, options, words):
    assert_refused(small("run", "small.toml", *options), *words)


# ── Photographs that are left out ─────────────────────────────────────────────────────────────────────────────────


def test_photographs_without_a_label_are_named_when_others_are_chosen(small, tmp_path):
    for name in "abcd":
        Image.new("RGB", (24, 24)).save(tmp_path / "photos" / f"{name}.png")
    run = small("plan", "small.toml", "--no-calibrate")
    assert run.code == 0
    assert "note: 4 of the photographs have no label and are left out: a.png, b.png, c.png, …" in run.said
    assert "left out" not in small("plan", "small.toml", "--no-calibrate").said, "the choice was made before"


def test_photographs_that_cannot_be_read_are_named(small, tmp_path):
    write(tmp_path, images={"folder": "photos"}, grids=None)
    (tmp_path / "photos" / "2.png").write_bytes(b"no picture")
    run = small("plan", "small.toml", "--no-calibrate")
    assert run.code == 0
    assert "note: 1 of the photographs cannot be read and are left out: 2.png." in run.said
    assert "the first: 2.png is not an image that Pillow can read" in run.said


def test_nothing_is_said_where_nothing_is_left_out(small):
    assert "left out" not in small("plan", "small.toml", "--no-calibrate").said


@pytest.mark.parametrize("device", ["meta", "hpu", "abacus"])
def test_a_device_that_cannot_be_used_is_refused_before_models_are_loaded(small, monkeypatch, device):
    monkeypatch.setattr("pixelcert.study.inventory.load_model", lambda *_: pytest.fail("a model was loaded"))
    assert_refused(small("run", "small.toml", "--device", device), f"device={device} cannot be used", "use cpu")


def test_ctrl_c_while_a_model_loads_is_answered(small, monkeypatch):
    monkeypatch.setattr("pixelcert.study.inventory.load_model", interrupted)
    run = small("plan", "small.toml")
    assert run.code == 130
    assert "interrupted." in run.err


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_results_of_another_point_of_the_study(small, tmp_path):
    both = {"sigma": [0.15, 0.3], "n": [40, 50], "presets": ["default", "reference"], "tau": [0.6, 0.65]}
    write(tmp_path, **both, methods=["ixg"], method=None, images={"folder": "photos", "count": 1})
    small("run", "small.toml")
    first = small("results", "small.toml")
    assert "σ = 0.15, n = 40, preset = default, τ = 0.6, K = 50 %. " in first.said
    options = ("--sigma", 0.3, "-n", 50, "--preset", "reference", "--tau", 0.65, "-K", 10)
    other = small("results", "small.toml", *options)
    assert "σ = 0.3, n = 50, preset = reference, τ = 0.65, K = 10 %. " in other.said
    assert table_rows(other) != table_rows(first)
    assert_refused(small("results", "small.toml", "--sigma", 0.2), "sigma=0.2", "[0.15, 0.3]")


def test_undefined_localisation_stands_for_what_is_asked(small, tmp_path):
    write(tmp_path, tau=[0.75, 0.6], deletion=[])
    small("run", "small.toml")
    assert table_rows(small("results", "small.toml"))["ixg"][1] == "undefined"
    assert table_rows(small("results", "small.toml", "--undefined", 0))["ixg"][1].startswith("0.000")


def test_results_of_a_changed_file_are_refused(done, tmp_path):
    write(tmp_path, sigma=0.3)
    assert_refused(done("results", "small.toml"), "sigma changed", "pixelcert study run")


def test_mistakes_of_a_file_are_one_message(small, tmp_path):
    assert_refused(small("plan", "nowhere.toml"), "nowhere.toml does not exist", "pixelcert study init")
    write(tmp_path, sigmas=0.3, n="many")
    for command in ("plan", "run", "results"):
        assert_refused(small(command, "small.toml"), "small.toml cannot be run as it is", "sigmas", "'many'")


def test_words_of_a_study_are_printed_as_they_are(small, tmp_path):
    """Square brackets and colons mean colours and pictures to the terminal's library."""
    label = "[red]:dog:[/red]"
    write(
        tmp_path,
        models=[label],
        model={label: {"model": "small_studies:tiny"}},
        methods=["[bold]", "cam"],
        method={"[bold]": {"method": "ixg"}},
    )
    for command in ("plan", "run", "results"):
        run = small(command, "small.toml")
        assert run.code == 0, run.said
        assert label in run.out
        assert "[bold]" in run.out
