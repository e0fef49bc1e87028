"""Measures: each row against the public metric functions on the votes of its job, and votes against plain sampling."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_studies import SIZE, N, photographs, small_study, tiny

import pixelcert as pc
from pixelcert.explainer import explain
from pixelcert.models.variants import for_grid
from pixelcert.noise import snap
from pixelcert.sampling import loop, precision
from pixelcert.study.inventory import Inventory
from pixelcert.study.job import Job
from pixelcert.study.worker import ORDER_PERCENTS, measure

TAUS = (0.6, 0.7, 0.75)  # n = 40 reaches two of them on images, and one on grids; with ten guesses, one on either
ASKED: dict[str, Any] = {
    "methods": ["ixg", "grad_cam"],
    "layers": ["input", "final"],
    "presets": ["default", "reference"],
    "tau": list(TAUS),
    "deletion": [0.6, 0.75],
    "images": {"folder": "photos", "count": 2},
    "grids": {"count": 2},
}
Rows = dict[tuple[str, float | None, float | None], tuple[float, float, float]]  # by metric, τ and level


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> pc.Study:
    """Finished."""
    study = small_study(tmp_path_factory.mktemp("measures"), **ASKED)
    tally = study.run()
    assert (tally.done, tally.failures) == (32, {})
    return study


@pytest.fixture(scope="module")
def answers(study) -> list[tuple[Job, pc.Votes, Rows]]:
    """Every job with its votes and rows."""
    return [(job, study.store.load_votes(job), rows_of(study.store.load_measures(job))) for job in study.jobs()]


def rows_of(measures: dict[str, Any]) -> Rows:
    rows = {(row["metric"], row["tau"], row["level"]): numbers_of(row) for row in measures["rows"]}
    assert len(rows) == len(measures["rows"]), "every row once"
    return rows


def numbers_of(row: dict[str, Any]) -> tuple[float, ...]:
    return tuple(math.nan if row[name] is None else row[name] for name in ("value", "low", "high"))


def explainer_of(job: Job) -> pc.Method:
    """Made by hand, apart from the study's worker."""
    model = tiny()
    return pc.method(job.base, model if job.scene.kind == "image" else for_grid(model, 2 * SIZE), job.layer)


def image_of(folder: Path, job: Job) -> torch.Tensor:
    """Laid together by hand."""
    photos = [pc.load_image(folder / "photos" / chosen.file, SIZE) for chosen in job.scene.photographs]
    if job.scene.kind == "image":
        return photos[0]
    return torch.cat([torch.cat(photos[:2], dim=2), torch.cat(photos[2:], dim=2)], dim=1)


def clean_map(explainer: pc.Method, image: torch.Tensor, job: Job) -> np.ndarray | None:
    """The map of a grid without noise."""
    if job.scene.kind == "image":
        return None
    return explain(explainer, snap(image)[None], job.scene.explained.target).maps[0].numpy()


def partial_of(study: pc.Study, job: Job) -> pc.Votes:
    return pc.Votes.load(study.store.place(job).partial)


def expected_rows(
    votes: pc.Votes,
    explainer: pc.Method,
    image: torch.Tensor,
    cell: int | None,
    alpha: float = 0.001,
    correction: Any = None,
    taus: tuple[float, ...] = TAUS,
    deletion: tuple[float, ...] = (0.6, 0.75),
) -> Rows:
    """All that is to be measured of a job; `cell` is None on an image."""
    rows: dict[Any, tuple[float, ...]] = {}
    levels, target = votes.plan.levels, votes.provenance.target
    for level in levels:
        rows["mean_radius", None, level] = (votes.radius_map(level, alpha).mean(),)
    if cell is not None:
        clean = explain(explainer, snap(image)[None], target).maps[0]
        rows["grid_pg", None, None] = (pc.grid_pg(clean, 2, cell),)
    for tau in taus:
        try:
            certificate = votes.certify(tau, alpha, correction=correction)
            labels = dict(certificate.labels)
            if certificate.prediction is not None:
                rows["prediction_certified", tau, None] = (float(certificate.prediction.certified),)
        except pc.InfeasibleError:
            certificate, labels = None, {level: np.full(votes.size, pc.ABSTAIN) for level in levels}
        for level in levels:
            shares = pc.shares(labels[level])
            rows["certified", tau, level] = (pc.percent_certified(labels[level]),)
            rows["certified_1", tau, level] = (shares.ones,)
            rows["certified_0", tau, level] = (shares.zeros,)
            rows["abstained", tau, level] = (shares.abstained,)
            if cell is not None:
                interval = pc.certified_interval(labels[level], 2, cell)
                rows["certified_grid_pg", tau, level] = (pc.certified_grid_pg(labels[level], 2, cell), *interval)
        if cell is None and certificate is not None and tau in deletion:
            curve = pc.deletion_curve(explainer.model, image, target, pc.deletion_masks(labels))
            rows["confidence", tau, None] = (curve.confidence[0],)
            rows["deletion_area", tau, None] = (curve.area,)
            for step, level in enumerate(sorted(levels), 1):
                rows["deleted", tau, level] = (curve.deleted[step],)
                rows["deletion_confidence", tau, level] = (curve.confidence[step],)
            masks = pc.order_masks(certificate.order, votes.size, ORDER_PERCENTS)
            curve = pc.deletion_curve(explainer.model, image, target, masks)
            rows["order_deletion_area", tau, None] = (curve.area,)
            for step, percent in enumerate(ORDER_PERCENTS, 1):
                rows["order_deletion_confidence", tau, percent] = (curve.confidence[step],)
    return {name: (*numbers, *(math.nan,) * (3 - len(numbers))) for name, numbers in rows.items()}


def assert_same_rows(found: Rows, expected: Rows) -> None:
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        assert found[name] == pytest.approx(numbers, rel=1e-6, abs=1e-9, nan_ok=True), name


# ── Votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_of_a_job_are_those_of_plain_sampling(study, answers):
    for job, votes, _ in answers:
        settings = {"n": N, "levels": (50, 10), "preset": job.preset, "image_name": job.scene.name, "tau": None}
        target = job.scene.explained.target
        plain = pc.sample(explainer_of(job), image_of(study.base, job), target, **settings)
        assert votes.plan == plain.plan
        for name in ("ones", "zeros", "guess_ones", "predictions", "photo"):
            np.testing.assert_array_equal(getattr(votes, name), getattr(plain, name), err_msg=f"{job} {name}")


def test_votes_tell_the_studys_own_names_for_model_and_image(answers):
    for job, votes, _ in answers:
        told = votes.provenance
        assert (told.image_name, told.model, told.method, told.layer) == (job.scene.name, "tiny", job.base, job.layer)
        assert told.target_name == f"class {told.target}, of ten"


def test_target_is_the_label_of_the_photograph_that_is_explained(study, answers):
    labels = dict(line.split(",") for line in (study.base / "photos" / "labels.csv").read_text().splitlines())
    for job, votes, _ in answers:
        assert votes.provenance.target == int(labels[job.scene.explained.file])
        assert study.store.load_measures(job)["target"] == votes.provenance.target
    assert len({votes.provenance.target for _, votes, _ in answers}) > 1


def test_photograph_without_a_label_is_explained_for_what_the_model_takes_it_for(tmp_path):
    photographs(tmp_path / "photos", labels=[None] * 6, size=40)
    study = small_study(tmp_path)
    study.run()
    targets = []
    for job in study.jobs():
        assert job.scene.explained.target is None
        predicted, _ = tiny().predict(pc.load_image(tmp_path / "photos" / job.scene.name, SIZE))
        targets.append(study.store.load_votes(job).provenance.target)
        assert targets[-1] == predicted
    assert len(targets) == 6
    assert len(set(targets)) > 1


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_is_what_the_metric_says_of_the_votes(study, answers):
    for job, votes, rows in answers:
        cell = None if job.scene.kind == "image" else job.scene.cell
        assert_same_rows(rows, expected_rows(votes, explainer_of(job), image_of(study.base, job), cell))


def test_study_is_not_so_small_that_all_is_certified_or_nothing(answers):
    for metric in ("certified", "certified_grid_pg", "certified_1", "deleted"):
        values = {numbers[0] for _, _, rows in answers for name, numbers in rows.items() if name[0] == metric}
        assert len({value for value in values if 0 < value < 100}) > 5, metric


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.05},
        {"correction": "bonferroni"},
        {"correction": "joint"},
        {"correction": "none"},
        {"tau": [0.65], "deletion": [0.65]},
        {"tau": [0.9, 0.55], "deletion": []},
    ],
    ids=str,
)
def test_measures_follow_alpha_correction_and_tau_on_the_same_votes(study, answers, changes):
    settings = study.settings.model_copy(
        update={name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    )
    asked = {"alpha": settings.alpha, "correction": settings.correction}
    for job, votes, _ in answers[:3]:
        explainer, image = explainer_of(job), image_of(study.base, job)
        rows = rows_of(measure(votes, settings, job.scene, explainer.model, image, clean_map(explainer, image, job)))
        cell = None if job.scene.kind == "image" else job.scene.cell
        taus = {"taus": settings.tau, "deletion": settings.deletion_taus}
        assert_same_rows(rows, expected_rows(votes, explainer, image, cell, **asked, **taus))


def test_radius_is_that_of_the_certificate(study, answers):
    for job, votes, _ in answers:
        radii = study.store.load_measures(job)["radius"]
        assert radii.keys() == {"0.6", "0.7", "0.75"}
        assert radii["0.6"] == votes.certify(0.6).radius
        assert radii["0.75"] == pytest.approx(0.15 * 0.67449 - (3 * votes.pixels) ** 0.5 * 2**-20, abs=1e-6)


def test_tau_out_of_reach_certifies_nothing_and_says_so(answers):
    for job, _, rows in answers:
        for level in (50, 10):
            assert [rows[name, 0.75, level][0] for name in ("certified", "certified_1", "certified_0")] == [0, 0, 0]
            assert rows["abstained", 0.75, level][0] == 100
        assert ("confidence", 0.6, None) in rows or job.scene.kind == "grid"
        assert ("confidence", 0.75, None) not in rows, "nothing to delete"
        assert ("prediction_certified", 0.75, None) not in rows


def test_localisation_out_of_reach_is_undefined_and_anywhere(answers):
    grids = [rows for job, _, rows in answers if job.scene.kind == "grid"]
    assert len(grids) == 16
    for rows in grids:
        for tau in (0.7, 0.75):
            value, low, high = rows["certified_grid_pg", tau, 50]
            assert math.isnan(value)
            assert (low, high) == (0, 1)


def test_undefined_numbers_are_null_in_the_file(study, answers):
    job = next(job for job, _, _ in answers if job.scene.kind == "grid")
    text = study.store.measures_file(job).read_text()
    assert "NaN" not in text
    assert '"value": null' in text


def test_clean_localisation_is_that_of_the_method_without_noise(study, answers):
    """Input × gradient by autograd alone."""
    grids = [(job, rows) for job, _, rows in answers if job.scene.kind == "grid" and job.method == "ixg"]
    for job, rows in grids:
        if job.layer == "input":
            image = snap(image_of(study.base, job))[None].requires_grad_()
            tiny()(image)[0, job.scene.explained.target].backward()
            attribution = ((image - 0.5) * image.grad)[0].sum(dim=0)  # the normalisation's mean is one half
            score = pc.grid_pg(attribution.detach(), 2, job.scene.cell)
            assert rows["grid_pg", None, None][0] == pytest.approx(score, rel=1e-4)
    assert len({rows["grid_pg", None, None][0] for _, rows in grids}) > 2


def test_images_are_not_localised_and_grids_not_deleted(answers):
    for job, _, rows in answers:
        metrics = {name[0] for name in rows}
        assert ("certified_grid_pg" in metrics) == ("grid_pg" in metrics) == (job.scene.kind == "grid")
        assert ("deletion_area" in metrics) == ("order_deletion_confidence" in metrics) == (job.scene.kind == "image")


# ── Interruptions ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_batches(monkeypatch) -> None:
    """Five batches of eight."""
    monkeypatch.setattr(precision, "choose_batch_size", lambda *_: 8)


def stop_at(count: int) -> Any:
    """A progress callback that presses Ctrl-C after so many samples."""

    def progress(counted: int, planned: int) -> None:
        if counted == count:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def one_job(tmp_path, small_batches) -> tuple[pc.Study, Any, Job]:
    study = small_study(tmp_path, presets="reference")
    return study, study.worker(study.resolve()), study.jobs()[0]


def undisturbed(study: pc.Study, job: Job) -> tuple[bytes, bytes]:
    """The files of the job in a folder of its own."""
    other = pc.Study(study.settings, study.base, study.base / "undisturbed")
    other.worker(other.resolve()).do(job)
    return other.store.votes_file(job).read_bytes(), other.store.measures_file(job).read_bytes()


@pytest.mark.parametrize("counts", [(8,), (32,), (8, 24, 32)], ids=str)
def test_interrupted_votes_are_continued_to_the_very_same(one_job, counts):
    study, worker, job = one_job
    for count in counts:
        with pytest.raises(KeyboardInterrupt):
            worker.do(job, stop_at(count))
        assert partial_of(study, job).counted == count
        assert not study.store.done(job)
    told: list[int] = []
    worker.do(job, lambda counted, planned: told.append(counted))
    assert told == list(range(counts[-1] + 8, N + 1, 8)), "nothing is sampled twice"
    assert undisturbed(study, job) == (
        study.store.votes_file(job).read_bytes(),
        study.store.measures_file(job).read_bytes(),
    )
    assert not study.store.place(job).partial.exists()


def test_interruption_after_the_last_sample_loses_nothing(one_job):
    study, worker, job = one_job
    with pytest.raises(KeyboardInterrupt):
        worker.do(job, stop_at(N))
    assert study.store.load_votes(job).complete
    worker.do(job, lambda *_: pytest.fail("sampled again"))
    assert study.store.votes_file(job).read_bytes() == undisturbed(study, job)[0]
    assert study.store.done(job)


def test_interrupted_run_goes_on_where_it_was(tmp_path, small_batches):
    study = small_study(tmp_path)
    jobs_begun: list[str] = []

    def watch(tally: Any) -> None:
        jobs_begun.append(tally.doing)
        if tally.done == 2 and "16 of 40" in tally.doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(watch=watch)
    assert [study.store.done(job) for job in study.jobs()] == [True, True, False, False]
    assert partial_of(study, study.jobs()[2]).counted == 16
    tally = study.run()
    assert (tally.done, tally.finished) == (4, 2)
    for job in study.jobs():
        assert undisturbed(study, job)[0] == study.store.votes_file(job).read_bytes()
    assert list((study.folder / "partial").iterdir()) == []


def test_explainer_that_fails_midway_is_continued_by_the_next_try(one_job, monkeypatch):
    study, worker, job = one_job
    noisy = loop.noisy
    failing = [True]

    def noisy_until(clean: Any, sigma: float, seed: int, indices: range, **named: Any) -> Any:
        if indices.start >= 16 and failing.pop():
            raise RuntimeError("a cosmic ray")
        return noisy(clean, sigma, seed, indices, **named)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "noisy", noisy_until)
        with pytest.raises(pc.SamplingError, match=r"16 of 40 samples .*a cosmic ray"):
            worker.do(job)
    assert partial_of(study, job).counted == 16
    told: list[int] = []
    worker.do(job, lambda counted, planned: told.append(counted))
    assert told == [24, 32, 40]
    assert study.store.votes_file(job).read_bytes() == undisturbed(study, job)[0]


@pytest.mark.parametrize("changes", [{"device": "another GPU"}, {"versions": {"torch": "1.0"}}], ids=str)
def test_votes_begun_on_another_machine_are_begun_again(one_job, changes):
    """It rounds differently: the two halves would be votes of two functions. The run says so in its notes."""
    study, worker, job = one_job
    with pytest.raises(KeyboardInterrupt):
        worker.do(job, stop_at(16))
    begun = partial_of(study, job)
    study.store.place(job).save(replace(begun, provenance=replace(begun.provenance, **changes)))
    tally = study.run()
    ((told, note),) = [(told, note) for told, note in tally.notes if "starts again" in note]
    assert told == str(job)
    assert next(iter(changes)).removesuffix("s") in note or "torch" in note
    assert study.store.votes_file(job).read_bytes() == undisturbed(study, job)[0]
    assert not study.store.place(job).partial.exists()


def test_damaged_half_of_the_votes_is_begun_again(one_job):
    study, worker, job = one_job
    with pytest.raises(KeyboardInterrupt):
        worker.do(job, stop_at(16))
    study.store.place(job).partial.write_bytes(b"half a file")
    worker.do(job)
    assert study.store.votes_file(job).read_bytes() == undisturbed(study, job)[0]


def test_votes_that_are_there_are_measured_without_sampling(study):
    """Another τ, α or correction costs no network run but those of the metrics."""
    job = study.jobs()[0]
    other = pc.Study(study.settings.model_copy(update={"alpha": 0.01}), study.base, study.folder)
    worker = other.worker(replace(Inventory.load(study.folder), settings=other.settings))
    assert not other.store.done(job)
    worker.do(job, lambda *_: pytest.fail("sampled again"))
    found = rows_of(other.store.load_measures(job))
    assert_same_rows(
        found, expected_rows(study.store.load_votes(job), explainer_of(job), image_of(study.base, job), None, 0.01)
    )
    assert found != rows_of(study.store.load_measures(job)), "which are kept beside them"


def test_warnings_of_the_library_are_handed_back(tmp_path):
    """The gradient behind the pooling is the same everywhere, so that no pixel gets a vote."""
    study = small_study(tmp_path, layers="final")
    tally = study.run()
    assert tally.failures == {}
    assert {job for job, _ in tally.notes} == {str(job) for job in study.jobs()}
    assert all("every map was constant" in note for _, note in tally.notes)


# ── How jobs are computed ─────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_are_sampled_in_the_precision_of_the_study(tmp_path):
    rough, exact = (
        small_study(tmp_path / name, precision=name, images={"folder": "photos", "count": 1})
        for name in ("bfloat16", "float32")
    )
    found = []
    for study in (rough, exact):
        assert study.run().done == 1
        (job,) = study.jobs()
        found.append(study.store.load_votes(job))
    assert [votes.provenance.precision for votes in found] == ["bfloat16", "float32"]
    assert (found[0].ones != found[1].ones).any()


@pytest.mark.parametrize("compiled", [True, False])
def test_jobs_are_compiled_where_the_study_asks_for_it(tmp_path, monkeypatch, compiled):
    monkeypatch.setattr("torch.compile", lambda function: function)
    monkeypatch.setattr("pixelcert.sampling.precision.missing_for_compiling", lambda device: "")
    study = small_study(tmp_path, compile=compiled, images={"folder": "photos", "count": 1})
    assert study.run().done == 1
    (job,) = study.jobs()
    assert study.store.load_votes(job).provenance.compiled is compiled
