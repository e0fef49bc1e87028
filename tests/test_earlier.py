"""Files that pixelcert 0.1.0 wrote still load, resume to the same votes, and end in the same tables."""

from __future__ import annotations

import csv
import json
import math
import shutil
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from earlier.network import SIZE, exact

import pixelcert as pc
from pixelcert.explainer import Tuning
from pixelcert.sampling import loop
from pixelcert.sampling.sample import Subject, sample_each

EARLIER = Path(__file__).parent / "earlier"
NAMES = ("ones", "zeros", "predictions", "photo")


def same_machine(votes: pc.Votes) -> str:
    """Return why votes of this machine are no continuation of `votes`, or nothing."""
    made = {name: votes.provenance.versions[name] for name in ("torch", "torchvision")}
    here = {name: version(name) for name in made}
    return "" if here == made else f"begun with {made}, here is {here}: such votes are refused"


@pytest.fixture
def complete() -> pc.Votes:
    return pc.Votes.load(EARLIER / "votes" / "complete.safetensors")


@pytest.fixture
def partial() -> pc.Votes:
    return pc.Votes.load(EARLIER / "votes" / "partial.safetensors")


@pytest.fixture
def study(tmp_path) -> pc.Study:
    """The interrupted study, in a copy of its folder."""
    shutil.copytree(EARLIER / "study", tmp_path / "study")
    return pc.Study.open(EARLIER / "study.toml", tmp_path / "study")


def explained() -> tuple[pc.Method, object]:
    return pc.method("ixg", exact(), layer="input"), pc.load_image(EARLIER / "photographs" / "0.png", SIZE)


def assert_same_tables(today: Path, earlier: Path) -> None:
    """Assert that two tables are equal, but for ends of certified intervals, which are rounded outward since 0.2.0."""
    rows, before = ([*csv.DictReader(path.open(encoding="utf-8"))] for path in (today, earlier))
    assert len(rows) == len(before)
    for row, was in zip(rows, before, strict=True):
        for end, outward in (("low", -math.inf), ("high", math.inf)):
            if row[end] and row[end] != was[end]:
                assert float(row[end]) == math.nextafter(float(was[end]), outward)
                row[end] = was[end]
        assert list(row.items()) == list(was.items())


def assert_same_counts(one: pc.Votes, other: pc.Votes) -> None:
    assert (one.plan, one.counted) == (other.plan, other.counted)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# ── Votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_votes_load_and_what_they_did_not_record_is_unknown(complete, partial):
    assert (complete.counted, partial.counted, complete.plan.n) == (30, 16, 30)
    assert (complete.provenance.surgery, complete.provenance.batches) == (None, None)
    assert complete.certify(0.6).percent_certified(10) > 0
    with pytest.raises(pc.IncompleteVotesError):
        partial.certify(0.6)


def test_the_same_question_gives_the_same_votes_today(complete):
    explainer, image = explained()
    target = complete.provenance.target
    subject = Subject(image, target, "0.png")
    today = next(sample_each(complete.plan, explainer, [subject], Tuning(8)))
    assert_same_counts(today, complete)


def test_partial_votes_are_resumed_to_those_of_an_uninterrupted_run(complete, partial):
    if why := same_machine(partial):
        with pytest.raises(pc.ArgumentError, match="torch"):
            partial.resume(*explained())
        pytest.skip(why)
    told: list[int] = []
    assert_same_counts(partial.resume(*explained(), progress=lambda counted, _: told.append(counted)), complete)
    assert told == [24, 30]


# ── A study ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_folder_holds_is_found(study):
    """Its inventory has no seal, and its measures and failures do not name their kind."""
    jobs = study.jobs()
    assert "checksum" not in json.loads((study.folder / "resolved.json").read_bytes())
    assert [study.store.done(job) for job in jobs] == [True, True, False, False]
    assert [path.exists() for path in study.store.place(jobs[2])] == [False, True]
    assert list(study.store.failures(jobs)) == [(jobs[3], "RuntimeError: the machine was switched off")]
    assert study.store.damaged(jobs) == []


def test_measures_that_were_changed_are_still_found(study):
    file = study.store.measures_file(study.jobs()[0])
    file.write_text(file.read_text().replace('"tau": 0.6', '"tau": 0.7', 1))
    assert study.store.damaged(study.jobs()) == [file]


def test_an_interrupted_study_is_run_to_its_end_and_samples_only_what_is_missing(study, monkeypatch):
    samples, noisy = [], loop.noisy

    def counting(clean, sigma, key, indices, **named):
        samples.extend(indices if sigma else ())
        return noisy(clean, sigma, key, indices, **named)

    monkeypatch.setattr(loop, "noisy", counting)
    kept = {file: file.read_bytes() for kind in ("votes", "measures") for file in (study.folder / kind).rglob("*.*")}
    (other,) = {same_machine(pc.Votes.load(file)) for file in (study.folder / "partial").iterdir()}
    tally = study.run()
    assert (tally.done, tally.finished, tally.failures) == (4, 2, {})
    assert samples == [*range(0 if other else 16, 30), *range(30)]
    assert [note for _, note in tally.notes if "starts again" in note] == [note for _, note in tally.notes]
    assert len(tally.notes) == bool(other)
    assert {file: file.read_bytes() for file in kept} == kept
    assert list(study.store.failures(study.jobs())) == []
    study.results()
    for name in ("rows.csv", "means.csv"):
        assert_same_tables(study.folder / "results" / name, EARLIER / "results" / name)
