"""Votes: a frozen value that refuses nonsense, survives a file exactly, and is not read early."""

import json
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from safetensors import safe_open

import pixelcert as pc
from pixelcert.basics.files import read_arrays, write_arrays
from pixelcert.votes import KIND, VERSION

RANDOM = np.random.default_rng(1)
PHOTO = RANDOM.integers(0, 256, (6, 8, 3), dtype=np.uint8)
PREDICTIONS = np.array([90, 0, 10], dtype=np.int32)


def assert_same(one: pc.Votes, other: pc.Votes) -> None:
    for field in fields(pc.Votes):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, field.name
            np.testing.assert_array_equal(mine, theirs, strict=True)
        else:
            assert mine == theirs, field.name


# ── A frozen value ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", [field.name for field in fields(pc.Votes)])
def test_no_field_can_be_assigned(make_votes, field):
    with pytest.raises(FrozenInstanceError):
        setattr(make_votes(), field, None)


@pytest.mark.parametrize("name", ["ones", "zeros", "guess_ones", "predictions", "photo"])
def test_arrays_are_read_only_when_made_and_when_loaded(make_votes, tmp_path, name):
    votes = make_votes(guess=10, predictions=PREDICTIONS, photo=PHOTO)
    for value in (votes, pc.Votes.load(votes.save(tmp_path / "votes.safetensors"))):
        with pytest.raises(ValueError, match="read-only"):
            getattr(value, name)[0] = 1


# ── Shapes and ranges ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ones", "zeros"),
    [
        ((1, 4, 4), (1, 4, 4)),  # one level too few
        ((3, 4, 4), (3, 4, 4)),
        ((2, 4, 4), (2, 4, 5)),
        ((2, 4, 4), (1, 4, 4)),
        ((2, 16), (2, 16)),
        ((2, 4, 4, 1), (2, 4, 4, 1)),
    ],
)
def test_counts_that_are_not_one_per_level_and_pixel_are_refused(make_votes, ones, zeros):
    with pytest.raises(pc.ArgumentError, match=r"\(levels, H, W\)"):
        make_votes(levels=(50, 10), ones=np.zeros(ones, np.int32), zeros=np.zeros(zeros, np.int32))


@pytest.mark.parametrize(("one", "zero"), [(101, 0), (0, 101), (51, 50), (-1, 0), (0, -1)])
def test_more_votes_than_samples_and_negative_votes_are_refused(make_votes, one, zero):
    ones, zeros = np.zeros((2, 1, 6, 8), np.int32)
    ones[0, 3, 4], zeros[0, 3, 4] = one, zero
    with pytest.raises(pc.ArgumentError, match="votes"):
        make_votes(levels=(50,), n=100, ones=ones, zeros=zeros)


@pytest.mark.parametrize("counted", [-1, 101])
def test_counted_outside_the_plan_is_refused(make_votes, counted):
    nothing = np.zeros((2, 6, 8), np.int32)
    with pytest.raises(pc.ArgumentError, match=str(counted)):
        make_votes(n=100, counted=counted, ones=nothing, zeros=nothing)


def test_ties_leave_ones_and_zeros_below_n(make_votes):
    counts = np.full((2, 6, 8), 30, np.int32)
    assert make_votes(n=100, ones=counts, zeros=counts).complete


def test_guessing_plan_without_its_guesses_is_refused(make_votes):
    """Without them the published test would run on the samples that its labels were guessed from."""
    with pytest.raises(pc.ArgumentError, match="guess_ones"):
        make_votes(guess=10, guess_ones=None)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("guess_ones", np.zeros((2, 6, 7), np.int32)),
        ("guess_ones", np.full((2, 6, 8), 11, np.int32)),  # more than the 10 samples that guess
        ("predictions", np.full(3, 100, np.int32)),  # 300 answers to 100 samples
        ("photo", np.zeros((6, 7, 3), np.uint8)),
    ],
)
def test_other_arrays_that_do_not_fit_are_refused(make_votes, name, array):
    with pytest.raises(pc.ArgumentError, match=name):
        make_votes(guess=10, **{name: array})


def test_size_pixels_and_grid_slack_follow_the_counts(make_votes):
    votes = make_votes(size=(6, 8))
    assert votes.size == (6, 8)
    assert votes.pixels == 48
    assert votes.radius_at(0.75) == pytest.approx(0.15 * 0.6744897501960817 - 144**0.5 * 2**-20, abs=1e-9)


# ── What they say ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_smoothed_is_the_share_of_counted_samples_in_the_top(make_votes):
    votes = make_votes(levels=(50, 10), n=100, counted=40)
    np.testing.assert_array_equal(votes.smoothed(50), votes.ones[0] / 40)
    np.testing.assert_array_equal(votes.smoothed(10), votes.ones[1] / 40)


def test_smoothed_is_zero_before_the_first_sample(make_votes):
    assert make_votes(counted=0).smoothed(50).max() == 0


def test_index_finds_levels_in_the_order_sampled(make_votes):
    votes = make_votes(levels=(5, 50, 12.5))
    assert [votes.index(level) for level in (5, 50, 12.5, 50.0)] == [0, 1, 2, 1]


def test_unknown_level_is_refused_with_the_known_ones(make_votes):
    votes = make_votes(levels=(50, 12.5))
    for ask in (votes.index, votes.smoothed, votes.radius_map):
        with pytest.raises(pc.ArgumentError, match=r"level 33 .*50, 12\.5"):
            ask(33)
    with pytest.raises(pc.ArgumentError, match=r"level 33 .*50, 12\.5"):
        votes.certify(levels=(33,))


@pytest.mark.parametrize("counted", [0, 1, 99])
@pytest.mark.parametrize("read", [lambda votes: votes.certify(), lambda votes: votes.radius_map(50)])
def test_incomplete_votes_are_not_read_early_and_say_how_to_resume(make_votes, counted, read):
    votes = make_votes(n=100, counted=counted)
    assert not votes.complete
    with pytest.raises(pc.IncompleteVotesError, match=rf"{counted} of the 100 .*votes\.resume.*--resume"):
        read(votes)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"photo": PHOTO},
        {"predictions": PREDICTIONS},
        {"guess": 10},
        {"guess": 10, "photo": PHOTO, "predictions": PREDICTIONS},
        {"counted": 0},
        {"counted": 37, "photo": PHOTO},
        {"levels": (12.5, 0.1, 99), "size": (10, 12)},
        {"n": 1000},
        {"sigma": 0.1 + 0.2},  # needs all 17 digits
        {"source": {"params": {"relu": False, "steps": 20, "eps": 1e-7, "rule": "ε", "none": None}, "layer": ""}},
        {"source": {"image_name": "小猫 [red] \"'.png", "class_names": {}}},
    ],
    ids=str,
)
def test_round_trip_through_a_file_is_exact(make_votes, tmp_path, settings):
    votes = make_votes(**settings)
    assert_same(pc.Votes.load(votes.save(tmp_path / "votes.safetensors")), votes)


def test_plan_with_every_field_set_survives(make_votes, tmp_path):
    plan = pc.Plan(sigma=0.33, n=100, levels=(50, 10), seed=-(2**63), sign="positive", rule="percentile")
    votes = replace(make_votes(levels=(45, 5)), plan=plan)
    assert pc.Votes.load(votes.save(tmp_path / "votes.safetensors")).plan == plan


def test_votes_from_a_file_can_be_resumed_whatever_the_params(make_votes, tmp_path):
    """JSON has no tuples, and the explainer that resumes still has them."""
    votes = make_votes(source={"params": {"window": (16, 16), "nested": {"stride": (8,)}}})
    loaded = pc.Votes.load(votes.save(tmp_path / "votes.safetensors"))
    assert loaded.provenance.differences(votes.provenance) == []


@pytest.mark.parametrize("compiled", [True, False])
def test_how_votes_were_computed_survives(make_votes, tmp_path, compiled):
    votes = make_votes(source={"precision": "bfloat16", "compiled": compiled})
    loaded = pc.Votes.load(votes.save(tmp_path / "votes.safetensors")).provenance
    assert (loaded.precision, loaded.compiled) == ("bfloat16", compiled)


def test_files_of_before_networks_could_be_compiled_are_read(make_votes, tmp_path):
    path = make_votes().save(tmp_path / "votes.safetensors")
    header, arrays = read_arrays(path, KIND, VERSION)
    assert header["provenance"].pop("compiled") is False
    loaded = pc.Votes.load(write_arrays(tmp_path / "old.safetensors", KIND, VERSION, header, arrays))
    assert loaded.provenance.compiled is False
    assert_same(loaded, make_votes())


def test_other_fields_of_the_provenance_are_not_made_up(make_votes, tmp_path):
    header, arrays = read_arrays(make_votes().save(tmp_path / "votes.safetensors"), KIND, VERSION)
    del header["provenance"]["precision"]
    with pytest.raises(pc.VotesFileError, match="damaged header"):
        pc.Votes.load(write_arrays(tmp_path / "old.safetensors", KIND, VERSION, header, arrays))


def test_name_of_an_image_file_that_is_not_unicode_survives(make_votes, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")  # legal on Linux
    votes = make_votes(source={"image_name": name})
    assert pc.Votes.load(votes.save(tmp_path / "votes.safetensors")).provenance.image_name == name


@pytest.mark.parametrize(("n", "dtype"), [(100, "uint8"), (255, "uint8"), (256, "uint16"), (1000, "uint16")])
def test_counts_take_as_few_bytes_as_n_allows(make_votes, tmp_path, n, dtype):
    path = make_votes(n=n, guess=10, predictions=np.array([n, 0])).save(tmp_path / "votes.safetensors")
    with safe_open(path, "numpy") as file:
        assert {name: str(file.get_tensor(name).dtype) for name in file.keys()} == dict.fromkeys(  # noqa: SIM118
            ("ones", "zeros", "guess_ones", "predictions"), dtype
        )


def test_header_is_readable_without_pixelcert(make_votes, tmp_path):
    path = make_votes(n=100, counted=40, photo=PHOTO).save(tmp_path / "votes.safetensors")
    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["pixelcert"])
        ones = file.get_tensor("ones")
    assert header["kind"] == "pixelcert votes"
    assert header["plan"]["sigma"] == 0.15
    assert header["plan"]["n"] == 100
    assert header["plan"]["levels"] == [50, 10]
    assert header["counted"] == 40
    assert header["provenance"]["method"] == "grad_cam"
    assert header["provenance"]["params"] == {"relu": True}
    assert header["provenance"]["class_names"] == {"281": "tabby"}
    assert header["provenance"]["versions"].keys() >= {"pixelcert", "torch", "numpy"}
    assert ones.shape == (2, 6, 8)


def test_equal_votes_make_equal_files(make_votes, tmp_path):
    settings = {"guess": 10, "predictions": PREDICTIONS, "photo": PHOTO}
    one = make_votes(**settings, source={"params": {"a": 1, "b": 2}}).save(tmp_path / "one.safetensors")
    other = make_votes(**settings, source={"params": {"b": 2, "a": 1}}).save(tmp_path / "other.safetensors")
    assert one.read_bytes() == other.read_bytes()


def test_different_votes_make_different_files(make_votes, tmp_path):
    one = make_votes(sigma=0.15).save(tmp_path / "one.safetensors")
    other = make_votes(sigma=0.25).save(tmp_path / "other.safetensors")
    assert one.read_bytes() != other.read_bytes()


def test_equal_votes_make_equal_files_in_every_process(make_votes, tmp_path):
    """Neither Python's hash seed nor the order in which safetensors keeps its header may show."""
    votes = make_votes(guess=10, predictions=PREDICTIONS, photo=PHOTO, source={"params": {"b": 2, "a": 1, "c": 3}})
    first = votes.save(tmp_path / "first.safetensors")
    code = "import sys; from pixelcert.votes import Votes; Votes.load(sys.argv[1]).save(sys.argv[2])"
    for seed in ("1", "2"):
        again = tmp_path / f"{seed}.safetensors"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, first, again], env=environment, check=True)
        assert again.read_bytes() == first.read_bytes()


@pytest.mark.parametrize("library", ["pixelcert", "torch", "torchvision"])
def test_votes_made_by_another_version_are_of_another_function(make_votes, library):
    source = make_votes().provenance
    other = replace(source, versions={**source.versions, library: "0.0.1"})
    (difference,) = source.differences(other)
    assert difference == f"{library} was {source.versions[library]!r}, now '0.0.1'"
    assert source.differences(replace(source, versions={**source.versions, "numpy": "0.0.1"})) == []
