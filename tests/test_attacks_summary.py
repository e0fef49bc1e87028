"""Many outcomes added up, and how they are printed: hand-made, so that every number is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixelcert.attacks.judge import GROUPS, Attempt
from pixelcert.attacks.outcome import CHANGES, Outcome
from pixelcert.attacks.summary import Attacked, Case, Summary, summarise
from pixelcert.commands.attack import Finished, show_outcomes

SAMPLES = 1000
KEPT, BELOW_TAU, LOST = 1000, 600, 100  # votes for a label: certifiable again, a majority that abstains, a flip

Make = Callable[..., Outcome]


@pytest.fixture
def make(make_votes) -> Make:
    """Outcomes of 40 pixels: 10 certified in, 20 out, and `fragile` that abstain with a majority for 1."""

    def outcome(
        image: str = "a",
        *,
        level: float = 25,
        radii: Sequence[float] | None = None,
        fragile: int = 10,
        sigma: float = 0.15,
        tau: float = 0.75,
        moves: dict[str, list[tuple[int, int]]] | None = None,  # change → (pixel, votes for its label) at every radius
        **source: Any,
    ) -> Outcome:
        counts = np.repeat([100, 0, 60, 50], [10, 20, fragile, 10 - fragile]).reshape(1, 5, 8)
        about = {"image": image, "image_name": f"{image}.png", **source}
        votes = make_votes((level,), (5, 8), sigma=sigma, ones=counts, zeros=100 - counts, source=about)
        certificate = votes.certify(tau=tau)

        def attempt(change: str, radius: float) -> Attempt:
            for_label = np.full(40, KEPT)
            for pixel, kept in (moves or {}).get(change, []):
                for_label[pixel] = kept
            out = (certificate.labels[level] == 0).flatten()
            ones = np.where(out, SAMPLES - for_label, for_label).astype(np.int32).reshape(5, 8)
            return Attempt(change, radius, np.zeros((3, 5, 8), np.float32), ones, SAMPLES - ones)

        limits = [certificate.radius, 4 * certificate.radius] if radii is None else radii
        changes = CHANGES[1:] if fragile else CHANGES[1:3]
        attempts = [attempt("none", 0.0), *(attempt(change, radius) for radius in limits for change in changes)]
        return Outcome(certificate, level, SAMPLES, "pathwise", 0, tuple(attempts))

    return outcome


def find(summary: Summary, change: str, multiple: float) -> Case:
    (found,) = (row for row in summary.rows if row.change == change and row.multiple == multiple)
    return found


# ── Sums ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tolls_of_all_images_are_added_group_by_group(make):
    one = make("a", moves={"certified": [(0, LOST), (1, BELOW_TAU), (12, BELOW_TAU)], "abstaining": [(30, LOST)]})
    two = make("b", moves={"certified": [(2, BELOW_TAU), (13, LOST)], "abstaining": [(31, LOST), (32, 450)]})
    (summary,) = summarise([one, two])
    assert summary.attacked == Attacked("resnet18", "grad_cam", "final", 25)
    assert summary.images == 2
    assert summary.pixels == {"certified in": 20, "certified out": 40, "abstaining": 20}
    assert find(summary, "certified", 1).tolls == {
        "certified in": (20, 1, 1, 3),
        "certified out": (40, 1, 1, 2),
        "abstaining": (20, 0, 0, None),
    }
    against_abstaining = find(summary, "abstaining", 1).tolls
    assert against_abstaining["abstaining"] == (20, 3, 2, None)
    assert against_abstaining["abstaining"].percent == pytest.approx(15)
    assert against_abstaining["certified in"] == (20, 0, 0, 0)
    assert all(toll.flipped == 0 for toll in find(summary, "none", 0).tolls.values())


def test_rows_go_from_small_changes_to_large(make):
    (summary,) = summarise([make("a", radii=[0.5]), make("b", radii=[0.1, 0.5])])
    assert [(row.radius, row.change, row.images) for row in summary.rows] == [
        (0, "none", 2),
        (0.1, "random", 1),
        (0.1, "certified", 1),
        (0.1, "abstaining", 1),
        (0.5, "random", 2),
        (0.5, "certified", 2),
        (0.5, "abstaining", 2),
    ]


def test_one_outcome_is_its_own_summary(make):
    outcome = make("a", moves={"certified": [(0, LOST), (11, BELOW_TAU)]})
    (summary,) = summarise([outcome])
    assert len(summary.rows) == len(outcome.attempts)
    for row, attempt in zip(summary.rows, outcome.attempts, strict=True):
        assert (row.change, row.radius, row.images) == (attempt.change, attempt.radius, 1)
        assert row.tolls == {group: outcome.toll(attempt, group) for group in GROUPS}


def test_explanations_are_not_mixed(make):
    plain = make("a")
    others = [make("a", layer="input"), make("a", method="cam"), make("a", model="vit_b_16"), make("a", level=10)]
    summaries = summarise([plain, *others, make("b")])
    assert [summary.attacked for summary in summaries] == [
        ("resnet18", "grad_cam", "final", 25),
        ("resnet18", "grad_cam", "input", 25),
        ("resnet18", "cam", "final", 25),
        ("vit_b_16", "grad_cam", "final", 25),
        ("resnet18", "grad_cam", "final", 10),
    ]
    assert [summary.images for summary in summaries] == [2, 1, 1, 1, 1]


def test_an_image_counts_once_however_many_certificates_it_has(make):
    (summary,) = summarise([make("a"), make("a"), make("b")])
    assert summary.images == 2
    assert summary.pixels["certified in"] == 30


def test_images_without_pixels_that_abstain_miss_the_attack_on_them(make):
    (summary,) = summarise([make("a"), make("b", fragile=0)])
    assert find(summary, "certified", 1).images == 2
    missing = find(summary, "abstaining", 1)
    assert missing.images == 1
    assert missing.tolls["certified in"].pixels == 10


def test_nothing_has_no_summary():
    assert summarise([]) == []


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_certificates_of_one_radius_share_multiples_and_radii(make):
    one = make("a")
    (summary,) = summarise([one, make("b")])
    radius = one.certificate.radius
    assert [row.multiple for row in summary.rows] == [0, 1, 1, 1, 4, 4, 4]
    assert [row.radius for row in summary.rows] == [0, *[radius] * 3, *[4 * radius] * 3]


def test_certificates_of_several_radii_share_their_multiples(make):
    (summary,) = summarise([make("a"), make("b", sigma=0.25)])
    assert [row.multiple for row in summary.rows] == [0, 1, 1, 1, 4, 4, 4]
    assert [row.radius for row in summary.rows] == [0, *[None] * 6]
    assert {row.images for row in summary.rows} == {2}


def test_certificates_of_several_radii_may_share_what_they_were_attacked_at(make):
    (summary,) = summarise([make("a", radii=[0.1, 0.2]), make("b", radii=[0.1, 0.2], sigma=0.25)])
    assert [row.radius for row in summary.rows] == [0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2]
    assert [row.multiple for row in summary.rows] == [0, *[None] * 6]
    assert {row.images for row in summary.rows} == {2}


@pytest.mark.filterwarnings("ignore:tau=0.5 certifies a radius of 0")
def test_a_certified_radius_of_zero_has_no_multiples(make):
    (summary,) = summarise([make("a", radii=[0.1, 0.2], tau=0.5), make("b", radii=[0.1, 0.2], tau=0.5)])
    assert [row.radius for row in summary.rows] == [0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2]
    assert {row.multiple for row in summary.rows} == {None}


# ── What is printed ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shown(capsys, monkeypatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "200")

    def show(*outcomes: Outcome, as_json: bool = False) -> str:
        show_outcomes([Finished(one, Path(f"{index}.votes"), ()) for index, one in enumerate(outcomes)], as_json)
        return capsys.readouterr().out

    return show


def lines_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if line[:1] == "│"]


def test_the_table_names_flips_and_abstentions_of_each_group(shown, make):
    found = shown(make("a", radii=[0.1], moves={"certified": [(0, LOST), (1, BELOW_TAU), (12, BELOW_TAU)]}))
    assert lines_of(found) == [
        ["δ = 0", "", "0", "0", "0", "0", "0"],
        ["0.989 R", "none: random", "0", "0", "0", "0", "0"],
        ["", "certified", "1 (1) 10.0 %", "2", "0", "1", "0"],
        ["", "abstaining", "0", "0", "0", "0", "0"],
    ]
    assert "All together" not in found


def test_groups_without_pixels_have_no_counts(shown, make):
    rows = lines_of(shown(make("a", radii=[0.1], fragile=0)))
    assert {row[-1] for row in rows} == {"–"}


def test_the_legend_tells_what_proves_what(shown, make):
    outcome = make("a")
    said = " ".join(shown(outcome).split())
    assert f"at least {outcome.judge.votes_against_needed} votes are against the label" in said
    assert f"Abstain: at least {outcome.judge.votes_against_needed_to_abstain} are" in said
    assert "its true share is below τ = 0.75 and the map with abstentions no longer shows the label" in said
    assert said.endswith("right everywhere in the table with confidence 99.9 %.")
    assert " ".join(shown(outcome, make("b")).split()).endswith("with confidence 99.9 %, for each file.")


def test_a_few_files_have_tables_and_their_sum(shown, make):
    moves = {"certified": [(0, LOST), (1, BELOW_TAU)]}
    found = shown(make("a", radii=[0.1], moves=moves), make("b", radii=[0.1], moves=moves))
    assert found.count("Flipped pixels: ") == 2
    _, together = found.split("All together: 2 images, grad_cam at final of resnet18, K = 25 %")
    assert lines_of(together)[2] == ["", "certified", "2 (2) 10.0 %", "4", "0", "0", "0"]


def test_many_files_have_a_verdict_each_and_one_table(shown, make):
    found = shown(*(make(name, radii=[0.1]) for name in "abcdefg"))
    assert "Flipped pixels" not in found
    assert found.count(".votes: holds: no certified pixel") == 7
    assert found.count("All together: 7 images") == 1


def test_rows_that_miss_images_say_so(shown, make):
    _, together = shown(make("a", radii=[0.1]), make("b", radii=[0.1], fragile=0)).split("All together")
    assert [row[2] for row in lines_of(together)] == ["2", "2", "2", "1"]


def test_sizes_are_radii_where_certificates_differ(shown, make):
    _, together = shown(make("a", radii=[0.1]), make("b", radii=[0.1], sigma=0.25)).split("All together")
    assert [row[0] for row in lines_of(together)] == ["δ = 0", "0.1", "", ""]


def test_json_holds_every_attack_and_the_sums(shown, make):
    outcomes = [make("a"), make("b", sigma=0.25), make("a", layer="input")]
    printed = json.loads(shown(*outcomes, as_json=True))
    assert [one["votes"] for one in printed["attacks"]] == ["0.votes", "1.votes", "2.votes"]
    assert [one["layer"] for one in printed["summary"]] == ["final", "input"]
    last = printed["summary"][0]["rows"][-1]
    assert (last["change"], last["multiple"], last["radius"], last["images"]) == ("abstaining", 4, None, 2)
    assert last["groups"]["certified out"] == {"pixels": 40, "flipped": 0, "provably": 0, "abstains": 0, "percent": 0}
    assert last["groups"]["abstaining"]["abstains"] is None
