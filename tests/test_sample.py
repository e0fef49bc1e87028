import dataclasses
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import pixelcert as pc
from pixelcert.basics.files import plain
from pixelcert.explainer import as_explainer, explain
from pixelcert.image import image_hash
from pixelcert.noise import key_of, noisy, snap

IMAGE = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(0))


def brightness(images, targets):
    """An explainer whose arithmetic does not depend on the batch."""
    return images[:, 0] - 0.5 * images[:, 1]


def same(one: pc.Votes, other: pc.Votes) -> bool:
    return one.counted == other.counted and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("ones", "zeros")
    )


class StopsAfter:
    """Raises `error` instead of its k-th answer."""

    def __init__(self, calls: int, error: BaseException) -> None:
        self.calls, self.error = calls, error

    def __call__(self, images, targets):
        self.calls -= 1
        if self.calls < 0:
            raise self.error
        return brightness(images, targets)

    __qualname__ = brightness.__qualname__


# ── Votes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batch_size", [1, 7, 32, 100, None])
def test_votes_do_not_depend_on_the_batch_size(batch_size):
    whole = pc.sample(brightness, IMAGE, 0, batch_size=100)
    assert same(whole, pc.sample(brightness, IMAGE, 0, batch_size=batch_size))
    assert whole.ones.max() > 0


def test_an_unstated_seed_is_drawn_after_everything_else_is_fixed(monkeypatch):
    """Nothing that is certified may be chosen after it, and no two runs may share it."""
    drawn: list[int] = []

    def draw(bits: int) -> int:
        drawn.append(bits)
        return 2**bits - len(drawn)

    monkeypatch.setattr("pixelcert.plan.secrets.randbits", draw)
    for refused in ({"n": 0}, {"levels": 100}, {"batch_size": 0}, {"tau": 0.99}, {"precision": "bfloat16"}):
        with pytest.raises(pc.PixelcertError):
            pc.sample(brightness, IMAGE, 0, **refused)
    assert drawn == []
    one, other = pc.sample(brightness, IMAGE, 0), pc.sample(brightness, IMAGE, 0)
    assert (one.plan.seed, other.plan.seed) == (2**63 - 1, 2**63 - 2)
    assert not same(one, other)
    assert same(one, pc.sample(brightness, IMAGE, 0, seed=one.plan.seed))
    assert drawn == [63, 63]


def test_an_explainer_that_knows_the_noise_beforehand_certifies_nothing(monkeypatch):
    """With the seed of 0.1.0, always 0, every pixel of this one was certified, though each p is 1/2."""

    def fitted(seed: int) -> float:
        clean = snap(IMAGE)
        known = {copy.numpy().tobytes() for copy in noisy(clean, 0.15, seed, range(100))}
        known |= {
            copy.numpy().tobytes()
            for copy in noisy(clean, 0.15, key_of(pc.Plan(seed=seed), image_hash(clean)), range(100))
        }

        def explainer(images, targets):
            maps = [
                torch.rand(images.shape[2:], generator=torch.Generator().manual_seed(int(1e6 * image.abs().sum())))
                for image in images
            ]
            ramp = torch.arange(maps[0].numel()).view_as(maps[0]).float()
            return torch.stack(
                [ramp if image.numpy().tobytes() in known else own for image, own in zip(images, maps, strict=True)]
            )

        return pc.certify(explainer, IMAGE, 0, seed=None, batch_size=1, levels=50).percent_certified(50)

    assert fitted(0) > 90  # of the seed that these tests let the operating system draw
    monkeypatch.setattr("pixelcert.plan.secrets.randbits", lambda bits: 12345)
    assert fitted(0) == 0


def test_images_draw_noise_of_their_own(monkeypatch):
    """So that means over a study's images have independent terms."""
    keys: set[int] = set()

    def watched(clean, sigma, key, *rest, **named):
        keys.add(key)
        return noisy(clean, sigma, key, *rest, **named)

    monkeypatch.setattr("pixelcert.sampling.loop.noisy", watched)
    for image in (IMAGE, IMAGE.flip(-1), IMAGE):
        pc.sample(brightness, image, 0, n=70, tau=None, seed=0)
    assert len(keys) == 2


def test_votes_depend_on_the_seed():
    assert not same(pc.sample(brightness, IMAGE, 0, seed=1), pc.sample(brightness, IMAGE, 0, seed=2))


@pytest.mark.usefixtures("unchecked")
def test_explainer_sees_each_noisy_image_once_and_never_the_clean_one():
    seen = []

    def spy(images, targets):
        seen.append(images.clone())
        assert torch.equal(targets, torch.full((len(images),), 3))
        return brightness(images, targets)

    votes = pc.sample(spy, IMAGE, 3, n=70, seed=5, batch_size=16)
    expected = noisy(snap(IMAGE), 0.15, key_of(votes.plan, image_hash(snap(IMAGE))), range(70))
    assert torch.equal(torch.cat(seen), expected)
    assert not any(torch.equal(image, snap(IMAGE)) for image in expected)


def test_channels_are_summed_and_single_channels_dropped():
    flat = pc.sample(brightness, IMAGE, 0)
    assert same(flat, pc.sample(lambda x, t: brightness(x, t)[:, None], IMAGE, 0))
    two = pc.sample(lambda x, t: torch.stack([x[:, 0], -0.5 * x[:, 1]], dim=1), IMAGE, 0)
    assert same(flat, two)


def test_coarse_maps_are_upsampled_bilinearly():
    def coarse(images, targets):
        return F.avg_pool2d(images, 2)[:, 0]

    def fine(images, targets):
        return F.interpolate(coarse(images, targets)[:, None], size=(12, 10), mode="bilinear")[:, 0]

    assert same(pc.sample(coarse, IMAGE, 0), pc.sample(fine, IMAGE, 0))


def test_half_precision_maps_are_accepted():
    votes = pc.sample(lambda x, t: brightness(x, t).bfloat16(), IMAGE, 0)
    assert votes.complete


def test_reference_preset_ranks_magnitudes_and_counts_its_guess_apart():
    votes = pc.sample(brightness, IMAGE, 0, preset="reference", batch_size=7)
    assert (votes.plan.sign, votes.plan.rule, votes.plan.guess) == ("absolute", "percentile", 10)
    first_ten = pc.sample(brightness, IMAGE, 0, preset="reference", n=10, tau=None)
    assert np.array_equal(votes.guess_ones, first_ten.ones)
    assert np.array_equal(votes.ones + votes.zeros, np.full_like(votes.ones, 100))


def test_reference_preset_certifies_a_constant_map_as_all_zero():
    certificate = pc.certify(lambda x, t: torch.ones(len(x), 12, 10), IMAGE, 0, preset="reference")
    assert all((labels == 0).all() for labels in certificate.labels.values())


@pytest.mark.parametrize("size", [8, 56, 100, 112, 192])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (7, 7), (512, 4, 4), (512, 7, 7), (3, 7, 7)])
def test_a_coarse_map_that_is_constant_stays_so_when_its_channels_are_summed_and_it_is_enlarged(shape, size):
    """Rounding differs from place to place, and is the same in every sample: it would be certified."""
    images = torch.rand(2, 3, size, size)
    for value in (0.1, 1 / 3, -123.456):
        constant = torch.full((2, *shape), value)
        maps = explain(as_explainer(lambda images, targets, constant=constant: constant), images, 0).maps
        assert (maps == maps[:, :1, :1]).all()


@pytest.mark.parametrize("size", [56, 100, 112, 192])
def test_zeros_that_a_relu_left_stay_zeros_when_a_map_is_enlarged(size):
    coarse = torch.full((1, 7, 7), 0.0)
    coarse[0, :2, :2] = 5.2
    maps = explain(as_explainer(lambda images, targets: coarse), torch.rand(1, 3, size, size), 0).maps
    assert (maps[0, size // 2 :] == 0).all()
    assert (maps[0, :, size // 2 :] == 0).all()


def test_a_constant_map_is_legal_abstains_everywhere_and_says_why():
    with pytest.warns(pc.PixelcertWarning, match="constant"):
        certificate = pc.certify(lambda x, t: torch.ones(len(x), 12, 10), IMAGE, 0)
    assert certificate.percent_certified(50) == 0
    with pytest.warns(pc.PixelcertWarning, match="ReLU"):
        pc.sample(lambda x, t: (x[:, 0] - 100).relu(), IMAGE, 0)


def test_nan_pixels_abstain_and_the_others_do_not():
    def broken(images, targets):
        maps = images[:, 0] + torch.arange(10.0)  # columns far apart
        maps[:, 0, 0] = torch.nan
        return maps

    votes = pc.sample(broken, IMAGE, 0, levels=(50,))
    labels = votes.certify().labels[50]
    assert votes.ones[0, 0, 0] == votes.zeros[0, 0, 0] == 0
    assert labels[0, 0] == pc.ABSTAIN
    assert (labels[:, 9] == 1).all()


def test_provenance_says_where_votes_came_from(embedded):
    explainer = pc.method("grad_cam", embedded, relu=False)
    image = torch.rand(3, 224, 224)
    source = pc.sample(explainer, image, 281, n=2, tau=None, image_name="cat.jpg").provenance
    assert (source.method, source.params, source.layer) == ("grad_cam", {"relu": False}, "final")
    assert (source.model, source.weights) == ("efficientnet_lite0", embedded.weights_hash)
    assert (source.target, source.target_name, source.image_name) == (281, "tabby", "cat.jpg")
    assert (source.device, source.precision) == ("cpu", "float32")
    assert source.versions["torch"].split("+")[0] == torch.__version__.split("+")[0]  # of which build, only one tells
    assert len(source.image) == len(source.weights) == 64


def test_predictions_are_counted_when_the_explainer_gives_logits(embedded):
    image = torch.rand(3, 224, 224)
    votes = pc.sample(pc.method("grad_cam", embedded, relu=False), image, 0, n=5, tau=None, batch_size=2)
    with torch.inference_mode():
        answers = embedded(noisy(snap(image), 0.15, 0, range(5))).argmax(dim=1)
    assert votes.predictions.sum() == 5
    assert np.array_equal(votes.predictions, np.bincount(answers, minlength=1000))


@pytest.mark.parametrize("logits", [torch.full((1, 5), torch.nan), torch.zeros(1, 5)])
def test_nan_and_tied_logits_answer_nothing(logits):
    class Undecided:
        def explain(self, images, targets):
            return pc.Explanation(brightness(images, targets), logits.expand(len(images), 5))

    votes = pc.sample(Undecided(), IMAGE, 0)
    assert votes.predictions.sum() == 0
    assert not votes.certify().prediction.certified


def test_progress_hears_of_every_batch():
    heard = []
    pc.sample(brightness, IMAGE, 0, n=70, batch_size=32, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(32, 70), (64, 70), (70, 70)]


# ── Interruption ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("preset", ["default", "reference"])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_interrupted_votes_are_kept_and_resume_to_the_same_votes(calls, preset, tmp_path):
    whole = pc.sample(brightness, IMAGE, 0, batch_size=8, preset=preset)
    with pytest.raises(pc.Interrupted) as stop:
        pc.sample(StopsAfter(calls, KeyboardInterrupt()), IMAGE, 0, batch_size=8, preset=preset)
    partial = stop.value.votes
    assert partial.counted == 8 * calls
    with pytest.raises(pc.IncompleteVotesError, match=rf"{8 * calls} of the 100"):
        partial.certify()
    resumed = pc.Votes.load(partial.save(tmp_path / "part.safetensors")).resume(brightness, IMAGE)
    assert same(whole, resumed)
    one, other = whole.save(tmp_path / "whole.safetensors"), resumed.save(tmp_path / "resumed.safetensors")
    assert one.read_bytes() == other.read_bytes()


def test_interruption_is_a_keyboard_interrupt_for_those_who_do_not_care():
    with pytest.raises(KeyboardInterrupt):
        pc.sample(StopsAfter(1, KeyboardInterrupt()), IMAGE, 0, batch_size=8)


@pytest.mark.usefixtures("unchecked")
def test_an_explainer_that_fails_midway_loses_no_votes():
    with pytest.raises(pc.SamplingError, match=r"after 16 of 100 samples .*RuntimeError: cable pulled") as failure:
        pc.sample(StopsAfter(2, RuntimeError("cable pulled")), IMAGE, 0, batch_size=8)
    assert same(failure.value.votes.resume(brightness, IMAGE), pc.sample(brightness, IMAGE, 0))


def test_complete_votes_resume_to_themselves_without_sampling():
    votes = pc.sample(brightness, IMAGE, 0)
    assert same(votes, votes.resume(StopsAfter(0, AssertionError("sampled again")), IMAGE))


def test_resuming_with_another_image_or_explainer_is_refused():
    votes = dataclasses.replace(pc.sample(brightness, IMAGE, 0), counted=100)
    with pytest.raises(pc.ArgumentError, match="image was"):
        votes.resume(brightness, IMAGE * 0.5)
    with pytest.raises(pc.ArgumentError, match="method was 'brightness'"):
        votes.resume(lambda x, t: x[:, 0], IMAGE)


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
])  # fmt: skip
def test_out_of_memory_halves_the_batch_and_loses_no_votes(error):
    sizes = []

    def hungry(images, targets):
        sizes.append(len(images))
        if len(images) > 9 and len(sizes) > 2:
            raise error
        return brightness(images, targets)

    votes = pc.sample(hungry, IMAGE, 0, batch_size=32)
    assert same(votes, pc.sample(brightness, IMAGE, 0))
    assert sizes[:5] == [32, 32, 32, 16, 8]
    assert votes.provenance.batch_size == 8


def test_out_of_memory_with_a_single_image_is_an_error():
    def starving(images, targets):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        pc.sample(starving, IMAGE, 0)


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────


def never(images, targets):
    raise AssertionError("the explainer was called")


@pytest.mark.parametrize(("settings", "named"), [
    ({"sigma": 0}, r"sigma=0 "), ({"sigma": -0.1}, "sigma=-0.1"), ({"sigma": float("nan")}, "sigma=nan"),
    ({"sigma": 2.0}, "sigma=2.0"), ({"tau": 0.4}, "tau=0.4"), ({"tau": 1.0}, "tau=1.0"), ({"alpha": 0}, "alpha=0 "),
    ({"alpha": 1.0}, "alpha=1.0"), ({"levels": (0,)}, "levels holds 0"), ({"levels": (100,)}, "levels holds 100"),
    ({"levels": (50, 50.0)}, "twice"), ({"levels": ()}, "levels is empty"), ({"n": 0}, "n=0"), ({"n": 10.5}, "n=10.5"),
    ({"n": 20}, "n=20 .*at least"), ({"seed": 2**64}, "seed="), ({"sign": "negative"}, "sign='negative'"),
    ({"preset": "paper"}, "preset='paper'"), ({"batch_size": 0}, "batch_size=0"),
    ({"sigma": "0.1"}, r"sigma='0\.1' is of type str: give a number such as 0\.15"), ({"sigma": None}, "sigma=None"),
    ({"n": "100"}, "n='100'"), ({"seed": "0"}, "seed='0'"), ({"tau": "0.75"}, "tau='0.75'"),
    ({"alpha": None}, "alpha=None"),
    ({"levels": "20"}, "levels='20'"), ({"levels": (50, None)}, "levels=None"), ({"levels": None}, "levels=None"),
    ({"batch_size": "8"}, "batch_size='8'"),
])  # fmt: skip
def test_bad_settings_are_refused_before_the_explainer_is_called(settings, named):
    with pytest.raises(pc.PixelcertError, match=named):
        pc.sample(never, IMAGE, 0, **settings)


@pytest.mark.parametrize(("image", "named"), [
    (IMAGE * 2, "from .* to"), (IMAGE - 0.5, "before any normalisation"), (IMAGE * torch.nan, "NaN"),
    (IMAGE[None], r"\(1, 3, 12, 10\)"), ((IMAGE * 255).byte(), "uint8"),
])  # fmt: skip
def test_bad_images_are_refused_before_the_explainer_is_called(image, named):
    with pytest.raises(pc.ImageError, match=named):
        pc.sample(never, image, 0)


@pytest.mark.parametrize("levels", [20, 20.0, np.float64(20), [20], np.array([20])])
def test_one_level_may_stand_alone(levels):
    votes = pc.sample(brightness, IMAGE, 0, levels=levels)
    assert votes.plan.levels == votes.certify(levels=levels).levels == (20,)


@pytest.mark.parametrize(("target", "named"), [
    (-1, "target=-1"), (1.5, "target=1.5"), (1000, "0 to 999"), (None, "target=None"),
    ("tabby", r"target='tabby' is not a class index: .*model\.class_index"),
])  # fmt: skip
def test_bad_targets_are_refused(target, named, embedded):
    with pytest.raises(pc.ArgumentError, match=named):
        pc.sample(pc.method("grad", embedded), torch.rand(3, 224, 224), target)


def test_wrong_channels_are_refused(embedded):
    with pytest.raises(pc.ImageError, match="4 channels and the model takes 3"):
        pc.sample(pc.method("grad", embedded), torch.rand(4, 224, 224), 0)


@pytest.mark.parametrize(("answer", "named"), [
    (lambda x, t: x[:3, 0], "shape"), (lambda x, t: x.mean(), "shape"), (lambda x, t: x[:, 0].flatten(1), "shape"),
    (lambda x, t: F.interpolate(x, scale_factor=2)[:, 0], "or coarser"), (lambda x, t: x[:, 0].numpy(), "ndarray"),
    (lambda x, t: x[:, 0].to("meta"), "meta for images on cpu"), (lambda x, t: (x[:, 0] > 0.5), "bool"),
    (lambda x, t: x[:, 0] * torch.nan, "NaN everywhere"),
])  # fmt: skip
def test_bad_answers_of_the_explainer_are_refused_at_the_first_batch(answer, named):
    with pytest.raises(pc.ExplainerError, match=named):
        pc.sample(answer, IMAGE, 0)


def test_logits_of_a_wrong_shape_are_refused():
    class Broken:
        def explain(self, images, targets):
            return pc.Explanation(brightness(images, targets), torch.zeros(5))

    with pytest.raises(pc.ExplainerError, match=r"logits of shape \(5,\)"):
        pc.sample(Broken(), IMAGE, 0)


def test_a_network_in_training_mode_is_refused():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.LazyLinear(5)
    )
    net(torch.zeros(2, 3, 12, 10))
    explainer = pc.method("grad", pc.Classifier(net, mean=[0.5] * 3, std=[0.5] * 3))
    net.train()
    with pytest.raises(pc.ModelError, match="training mode"):
        pc.sample(explainer, IMAGE, 0)


def test_a_network_of_any_input_size_can_be_asked_for_its_classes():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(360, 7))
    explainer = pc.method("grad", pc.Classifier(net, mean=[0.5] * 3, std=[0.5] * 3))
    with pytest.raises(pc.ArgumentError, match="classes 0 to 6"):
        pc.sample(explainer, IMAGE, 7)
    with pytest.raises(pc.ModelError, match="cannot take images of 10 × 10"):
        pc.sample(explainer, IMAGE[:, :10], 0)


@pytest.mark.parametrize("correction", ["joint", "simes", "reference"])
def test_a_certificate_that_cannot_be_had_is_refused_before_sampling(correction):
    with pytest.raises(pc.PixelcertError, match=correction):
        pc.certify(never, IMAGE, 0, n=40, correction=correction)


def test_a_level_that_covers_the_whole_map_is_refused():
    with pytest.raises(pc.ArgumentError, match=r"levels holds 99\.5, which is the whole map of 120 pixels"):
        pc.sample(never, IMAGE, 0, levels=(50, 99.5))


# ── Numbers of other libraries ────────────────────────────────────────────────────────────────────────────────────────


class Described:
    """An explainer whose parameters are numbers of every kind."""

    params = {  # noqa: RUF012
        "eps": np.float32(0.1), "steps": np.int64(3), "scale": Decimal("0.5"), "share": Fraction(1, 3),
        "long": np.longdouble(0.5), "far": float("inf"), "none": float("nan"), "yes": np.bool_(True),
    }  # fmt: skip
    explain = staticmethod(brightness)


def test_votes_of_numpys_numbers_are_saved_with_pythons(tmp_path):
    """They failed when the votes were saved, at the end of sampling."""
    numbers = {"sigma": np.float32(0.15), "n": np.int64(60), "seed": torch.tensor(7), "batch_size": np.int64(16)}
    levels = (np.float32(12.6), torch.tensor(50))
    votes = pc.sample(
        Described(), IMAGE, np.int64(0), levels=levels, tau=np.float32(0.6), alpha=np.float32(0.05), **numbers
    )
    loaded = pc.Votes.load(votes.save(tmp_path / "votes.safetensors"))
    assert (loaded.plan, loaded.provenance) == (votes.plan, votes.provenance)
    assert votes.plan.sigma == float(np.float32(0.15))
    told = votes.provenance.params
    assert {name: told[name] for name in ("scale", "share", "far", "none")} == {
        "scale": "0.5", "share": "1/3", "far": "inf", "none": "nan"
    }  # fmt: skip
    assert loaded.provenance.differences(votes.provenance) == []


def test_parameters_that_differ_as_decimals_are_of_other_explainers():
    one, other = (dict(Described.params, scale=Decimal(scale)) for scale in ("0.5", "0.25"))
    assert plain(one) != plain(other)


def test_parameters_that_hold_themselves_are_told_as_far_as_they_go(tmp_path):
    knot: dict[str, object] = {"a": 1}
    knot["self"] = knot
    votes = pc.sample(type("Knotted", (Described,), {"params": knot})(), IMAGE, 0)
    assert pc.Votes.load(votes.save(tmp_path / "votes.safetensors")).provenance == votes.provenance


@pytest.mark.parametrize(
    ("what", "value"), [("image_name", Path("cat.png")), ("image_name", None), ("batch_size", 2.5)]
)
def test_what_no_file_could_hold_is_refused_before_sampling(what, value):
    asked = []

    def explainer(images, targets):
        asked.append(len(images))
        return brightness(images, targets)

    with pytest.raises(pc.ArgumentError, match=what):
        pc.sample(explainer, IMAGE, 0, **{what: value})
    assert sum(asked) < 10  # no more than the checks of the explainer itself
