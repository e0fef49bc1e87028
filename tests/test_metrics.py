"""Metrics: numbers worked out by hand, slow loops, every possible case, and laws that they must obey."""

import math
import subprocess
import sys
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from thoroughness import examples
from torch import nn

import pixelcert as pc
from pixelcert.metrics import EDGES

NAN = math.nan


@st.composite
def grids(draw, elements, dtype):
    """Draw an array (H, W) of m × m equal cells, not always square, with m."""
    m, tall, wide = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return draw(arrays(dtype, (m * tall, m * wide), elements=elements)), m


labelled_grids = grids(st.sampled_from([1, 0, pc.ABSTAIN]), np.int8)
attributed_grids = grids(st.one_of(st.sampled_from([0.0, -1.0]), st.floats(-1.7e308, 1.7e308)), np.float64)


def cell_at(row, column, height, width, m):
    """Return the number of the cell that holds a pixel, from the pixel's place."""
    return row * m // height * m + column * m // width


def same(first, second):
    return first == second or (math.isnan(first) and math.isnan(second))


# ── Shares ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shares_of_a_map_counted_by_hand():
    """Three of 8 pixels are 1, one is 0 and four abstain."""
    labels = np.array([[1, 1, -1, -1], [0, 1, -1, -1]], dtype=np.int8)
    assert pc.shares(labels) == pc.Shares(ones=37.5, zeros=12.5, abstained=50)
    assert pc.percent_certified(labels) == 50


@given(labelled_grids)
def test_shares_sum_to_100_and_what_does_not_abstain_is_certified(grid):
    labels, _ = grid
    shares = pc.shares(labels)
    assert sum(shares) == pytest.approx(100)
    assert all(0 <= share <= 100 for share in shares)
    assert pc.percent_certified(labels) == pytest.approx(shares.ones + shares.zeros)
    assert pc.shares(np.random.default_rng(0).permutation(labels.ravel())[None]) == shares


def test_a_certificate_tells_the_same_shares(make_votes):
    certificate = make_votes().certify()
    for level in certificate.levels:
        labels = certificate.labels[level]
        assert certificate.shares(level) == pc.shares(labels)
        assert certificate.percent_certified(level) == pc.percent_certified(labels)
    assert len({certificate.shares(level) for level in certificate.levels}) == 2


def test_shares_do_not_wait_for_torch():
    code = "import pixelcert as pc, sys; pc.shares([[1]]); pc.deletion_masks; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ── Localisation ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_cells_are_numbered_row_by_row_and_tile_the_grid(m):
    height, width = 3 * m, 2 * m
    for cell in range(m * m):
        expected = [[cell_at(i, j, height, width, m) == cell for j in range(width)] for i in range(height)]
        assert pc.cell_mask(height, width, m, cell).tolist() == expected


def test_grid_pg_by_hand():
    """Positive: 1 + 2 in the first cell, 4 in the second, 0.5 + 0.5 in the fourth; 8 in all."""
    attribution = np.array([[1, -9, 4, 0], [2, 0, -1, 0], [-3, 0, 0.5, 0], [0, -1, 0, 0.5]])
    assert [pc.grid_pg(attribution, 2, cell) for cell in range(4)] == [3 / 8, 4 / 8, 0, 1 / 8]
    assert pc.grid_pg(attribution, 1, 0) == 1


def test_grid_pg_is_undefined_without_positive_attributions():
    with np.errstate(all="raise"):
        assert math.isnan(pc.grid_pg(-np.ones((2, 2)), 2, 0))
        assert math.isnan(pc.grid_pg(np.zeros((2, 2)), 2, 3))


@settings(max_examples=examples(40))
@given(grids(st.floats(-10, 10), np.float64))
def test_grid_pg_is_the_papers_equation(grid):
    attribution, m = grid
    height, width = attribution.shape
    for cell in range(m * m):
        inside = total = Fraction(0)
        for i, j in product(range(height), range(width)):
            positive = max(Fraction(float(attribution[i, j])), Fraction(0))
            total += positive
            inside += positive if cell_at(i, j, height, width, m) == cell else 0
        score = pc.grid_pg(attribution, m, cell)
        assert score == pytest.approx(float(inside / total), rel=1e-9) if total else math.isnan(score)


@given(attributed_grids)
def test_grid_pg_of_all_cells_is_a_distribution_at_any_scale(grid):
    attribution, m = grid
    scores = [pc.grid_pg(attribution, m, cell) for cell in range(m * m)]
    if attribution.max() > 0:
        assert sum(scores) == pytest.approx(1)
        assert all(0 <= score <= 1 for score in scores)
    else:
        assert all(map(math.isnan, scores))


def test_grid_pg_of_values_whose_sum_is_no_float():
    """1.5e308 twice is past the largest float, 1.8e308."""
    assert pc.grid_pg([[1.5e308, 1.5e308], [1.5e308, 0.0]], 2, 0) == pytest.approx(1 / 3)


def test_grid_pg_of_one_full_cell_is_exactly_one():
    """0.1 summed in two orders differs in its last digit, and the ratio must not exceed 1."""
    attribution = np.zeros((64, 64))
    attribution[:32, 32:] = np.random.default_rng(0).random((32, 32))
    assert [pc.grid_pg(attribution, 2, cell) for cell in range(4)] == [0, 1, 0, 0]


def test_certified_grid_pg_by_hand():
    """Ones: 2 in the first cell, 1 in the third; abstained pixels and zeros do not count."""
    labels = np.array([[1, 1, -1, 0], [0, -1, -1, 0], [0, 0, 0, 0], [0, 1, -1, 0]], dtype=np.int8)
    assert [pc.certified_grid_pg(labels, 2, cell) for cell in range(4)] == [2 / 3, 0, 1 / 3, 0]


def test_certified_grid_pg_without_certified_ones_is_what_the_caller_says():
    labels = np.array([[0, -1], [-1, 0]])
    assert math.isnan(pc.certified_grid_pg(labels, 2, 0))
    assert pc.certified_grid_pg(labels, 2, 0, undefined=0) == 0
    assert pc.certified_grid_pg([[1, -1], [-1, 0]], 2, 0, undefined=0) == 1


@given(labelled_grids)
def test_certified_grid_pg_is_grid_pg_of_the_certified_ones(grid):
    labels, m = grid
    scores = [pc.certified_grid_pg(labels, m, cell) for cell in range(m * m)]
    ones = (labels == 1).astype(float)
    assert all(same(score, pc.grid_pg(ones, m, cell)) for cell, score in enumerate(scores))
    assert sum(scores) == pytest.approx(1) if ones.any() else all(map(math.isnan, scores))


def test_certified_interval_by_hand():
    """A_in = 1, U_in = 2, A_out = 3, U_out = 4: from 1/(1+3+4) to (1+2)/(1+2+3)."""
    labels = np.array([[1, -1, 1, 1], [-1, 0, 1, -1], [-1, 0, 0, 0], [-1, -1, 0, 0]], dtype=np.int8)
    assert pc.certified_interval(labels, 2, 0) == pc.Interval(low=1 / 8, high=3 / 6)


@pytest.mark.parametrize(("cell", "rest", "low", "high"), [
    (-1, 0, 1, 1), (0, -1, 0, 0), (-1, -1, 0, 1), (1, 0, 1, 1), (0, 1, 0, 0), (1, -1, 0.25, 1), (-1, 1, 0, 0.25),
])  # fmt: skip
def test_certified_interval_where_a_side_has_no_ones(cell, rest, low, high):
    assert pc.certified_interval([[cell, rest], [rest, rest]], 2, 0) == (low, high)


def test_certified_interval_is_undefined_only_where_nothing_can_be_one():
    assert all(map(math.isnan, pc.certified_interval(np.zeros((2, 2)), 2, 0)))


def reachable_ratios(labels, m, cell):
    """Yield the localisation of every map in which each abstained pixel is 1 or not, where it is defined."""
    mask, undecided = pc.cell_mask(*labels.shape, m, cell), np.argwhere(labels == pc.ABSTAIN)
    for choice in product([0, 1], repeat=len(undecided)):
        decided = labels.copy()
        decided[tuple(undecided.T)] = choice
        if decided.any():
            yield Fraction(int(decided[mask].sum()), int(decided.sum()))


def is_interval_of(ratios, low, high):
    """Whether both ends are the outermost ratios, or where no float is equal, the next float outside."""
    if not ratios:
        return math.isnan(low) and math.isnan(high)
    beside = math.nextafter(low, 1), math.nextafter(high, 0)
    least, most = min(ratios), max(ratios)
    return low <= least and (low == least or least < beside[0]) and most <= high and (high == most or most > beside[1])


@pytest.mark.parametrize("ones", range(1, 20))
def test_certified_interval_is_rounded_outward(ones):
    """Rounded to the nearest, one end in two lay inside the interval that is proved."""
    labels = np.zeros((2, 40), np.int8)
    labels[0, 0], labels[0, -ones:] = 1, 1
    low, high = pc.certified_interval(labels, 2, 0)
    assert low <= Fraction(1, ones + 1) <= high <= math.nextafter(low, 1)


@given(st.sampled_from([((2, 2), 2), ((2, 4), 2), ((3, 3), 3), ((2, 3), 1)]), st.data())
@settings(deadline=None)
def test_certified_interval_is_exactly_what_abstained_pixels_can_make_of_it(shape_and_m, data):
    shape, m = shape_and_m
    labels = data.draw(arrays(np.int8, shape, elements=st.sampled_from([1, 0, pc.ABSTAIN])))
    cell = data.draw(st.integers(0, m * m - 1))
    ratios = list(reachable_ratios(labels, m, cell))
    low, high = pc.certified_interval(labels, m, cell)
    assert is_interval_of(ratios, low, high)


def test_certified_interval_of_every_map_of_four_pixels():
    for pixels in product([1, 0, pc.ABSTAIN], repeat=4):
        labels = np.array(pixels, dtype=np.int8).reshape(2, 2)
        for cell in range(4):
            ratios = list(reachable_ratios(labels, 2, cell))
            assert is_interval_of(ratios, *pc.certified_interval(labels, 2, cell)), (pixels, cell)


@given(labelled_grids)
def test_certified_grid_pg_lies_in_the_certified_interval(grid):
    labels, m = grid
    for cell in range(m * m):
        score, (low, high) = pc.certified_grid_pg(labels, m, cell), pc.certified_interval(labels, m, cell)
        assert math.isnan(low) == math.isnan(high) == (not (labels != 0).any())
        if not math.isnan(low):
            assert 0 <= low <= high <= 1
        if not math.isnan(score):
            assert low <= score <= high
        if not (labels == pc.ABSTAIN).any():
            assert same(low, score) or same(high, score)
            assert math.isnan(score) or high <= math.nextafter(low, 1)


@given(labelled_grids, st.integers(0, 2**32 - 1))
def test_localisation_knows_the_cell_and_not_the_place_within(grid, seed):
    labels, m = grid
    random = np.random.default_rng(seed)
    shuffled, cell = labels.copy(), int(random.integers(m * m))
    for mask in (pc.cell_mask(*labels.shape, m, cell), ~pc.cell_mask(*labels.shape, m, cell)):
        shuffled[mask] = random.permutation(labels[mask])
    assert same(pc.certified_grid_pg(shuffled, m, cell), pc.certified_grid_pg(labels, m, cell))
    assert all(map(same, pc.certified_interval(shuffled, m, cell), pc.certified_interval(labels, m, cell)))
    expected = pc.grid_pg(labels.astype(float), m, cell)
    assert pc.grid_pg(shuffled.astype(float), m, cell) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_even_evidence_scores_the_random_baseline(m):
    assert pc.random_baseline(m) == pytest.approx(1 / len(range(m * m)))
    for cell in range(m * m):
        assert pc.grid_pg(np.full((2 * m, 3 * m), 0.3), m, cell) == pytest.approx(pc.random_baseline(m))
        assert pc.certified_grid_pg(np.ones((2 * m, 3 * m)), m, cell) == pytest.approx(pc.random_baseline(m))


# ── Deletion ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deletion_takes_the_smallest_level_first_and_brings_nothing_back():
    labels = {50: [[1, -1, 1, 0]], 5: [[1, -1, -1, 0]], 10: [[1, 1, 0, 0]]}
    expected = [[[1, 0, 0, 0]], [[1, 1, 0, 0]], [[1, 1, 1, 0]]]
    assert pc.deletion_masks(labels).astype(int).tolist() == expected


levels_of_labels = st.integers(1, 4).flatmap(
    lambda count: arrays(np.int8, (count, 3, 4), elements=st.sampled_from([1, 0, pc.ABSTAIN]))
)


@settings(max_examples=examples(50))
@given(levels_of_labels, st.randoms())
def test_deletion_masks_only_grow_with_the_level(stack, random):
    labels = dict(zip((5, 10, 25, 50), stack, strict=False))
    masks = pc.deletion_masks(labels)
    for step, level in enumerate(sorted(labels)):
        slow = [[any(labels[k][i, j] == 1 for k in labels if k <= level) for j in range(4)] for i in range(3)]
        assert masks[step].tolist() == slow
    assert (masks[1:] >= masks[:-1]).all()
    deleted = pc.deletion_curve(brightness, torch.ones(1, 3, 4), 0, masks).deleted
    assert (np.diff(deleted) >= 0).all()
    assert deleted.tolist() == pytest.approx([0, *(100 * mask.sum() / 12 for mask in masks)])
    items = list(labels.items())
    random.shuffle(items)
    assert (pc.deletion_masks(dict(items)) == masks).all()


def brightness(images):
    """Return logits of two classes: the sum of all pixels, and 0."""
    return torch.stack([images.sum(dim=(1, 2, 3)), torch.zeros(len(images))], dim=1)


def test_deletion_masks_are_the_overlay_where_its_threshold_is_the_labels(make_votes):
    certificate = make_votes(levels=(50, 25, 10)).certify(correction="joint")
    masks = pc.deletion_masks(certificate.labels)
    for step, level in enumerate((10, 25, 50)):
        assert (masks[step] == ((certificate.overlay > 0) & (certificate.overlay <= level))).all()
    assert masks[0].any()


def votes_near_the_threshold(make_votes, seed=0, levels=(50, 10, 25)):
    """Make counts from 80 to 100 of 100, where about 93 are needed for 1: many ties, many pixels on either side."""
    ones = np.random.default_rng(seed).integers(80, 101, (len(levels), 12, 16), dtype=np.int32)
    return make_votes(levels=levels, size=(12, 16), ones=ones)


@pytest.mark.parametrize("seed", range(5))
def test_certificates_order_is_by_level_then_votes_then_index(make_votes, seed):
    certificate = votes_near_the_threshold(make_votes, seed).certify()
    keys = []
    for pixel in range(192):
        certified = [level for level in (10, 25, 50) if certificate.labels[level].ravel()[pixel] == 1]
        if certified:
            votes = certificate.votes.ones[(50, 10, 25).index(certified[0])].ravel()[pixel]
            keys.append((certified[0], -votes, pixel))
    order = certificate.order
    assert order.tolist() == [pixel for *_, pixel in sorted(keys)]
    assert len(order) < 192
    assert {level for level, *_ in keys} == {10, 25, 50}
    assert len({key[:2] for key in keys}) < len(keys), "some are told apart by their index alone"


def test_certificates_order_passes_through_the_deletion_masks(make_votes):
    certificate = votes_near_the_threshold(make_votes).certify()
    order = certificate.order
    for mask in pc.deletion_masks(certificate.labels):
        assert sorted(order[: mask.sum()]) == np.flatnonzero(mask).tolist()


def test_certificates_order_is_empty_where_nothing_is_certified_one(make_votes):
    certificate = make_votes(ones=np.full((2, 6, 8), 50, dtype=np.int32)).certify()
    order = certificate.order
    assert order.tolist() == []
    assert not pc.order_masks(order, (6, 8), (10, 100)).any()


def test_order_masks_take_percents_of_the_whole_image():
    """10 % of 20 pixels are 2, and 29 % are 5.8, so 5. The order has 6 pixels, so 100 % takes those 6."""
    order = [7, 3, 19, 0, 11, 4]
    masks = pc.order_masks(order, (4, 5), (0, 10, 29, 100))
    taken = [np.flatnonzero(mask).tolist() for mask in masks]
    assert taken == [[], [3, 7], [0, 3, 7, 11, 19], [0, 3, 4, 7, 11, 19]]
    assert masks.shape == (4, 4, 5)


def test_order_masks_count_exactly():
    """0.57 % of 10 000 pixels are 57, and 57 % are 5700. Floating point makes them 56.99999999999999 and less."""
    masks = pc.order_masks(np.arange(10_000), (100, 100), (0.57, 14.5, 57))
    assert masks.sum(axis=(1, 2)).tolist() == [57, 1450, 5700]


@given(st.integers(0, 12), st.lists(st.floats(0, 100), min_size=1, max_size=5), st.randoms())
def test_order_masks_grow_with_the_percentage_and_never_leave_the_order(length, percents, random):
    order = random.sample(range(12), length)
    masks = pc.order_masks(order, (3, 4), sorted(percents))
    assert (masks[1:] >= masks[:-1]).all()
    for mask, percent in zip(masks, sorted(percents), strict=True):
        count = min(length, math.floor(Fraction(str(percent)) * 12 / 100))
        assert set(np.flatnonzero(mask)) == set(order[:count])


@pytest.fixture(scope="module")
def small_net():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5)
    )
    nn.init.normal_(net[-1].weight)  # large enough that single pixels matter
    return net.eval()


def slow_confidences(model, image, target, masks, fill):
    """Delete one pixel and one channel at a time, image by image, and use the definition of softmax."""
    confidences = []
    for mask in [np.zeros(image.shape[1:], dtype=bool), *masks]:
        changed = image.clone()
        for channel, i, j in product(*map(range, image.shape)):
            if mask[i, j]:
                changed[channel, i, j] = fill
        with torch.no_grad():
            logits = model(changed[None])[0].double().tolist()
        confidences.append(math.exp(logits[target]) / sum(map(math.exp, logits)))
    return confidences


@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_deletion_curve_is_the_slow_loop(small_net, fill):
    random = np.random.default_rng(1)
    image = torch.from_numpy(random.random((3, 7, 6), dtype=np.float32))
    masks = random.random((4, 7, 6)) < [[[0.1]], [[0.3]], [[0.6]], [[1.0]]]
    before = image.clone()
    for target in range(5):
        curve = pc.deletion_curve(small_net, image, target, masks, fill=fill)
        assert curve.confidence == pytest.approx(slow_confidences(small_net, image, target, masks, fill), rel=1e-5)
        assert curve.deleted == pytest.approx([0, *(100 * mask.sum() / 42 for mask in masks)])
        assert np.ptp(curve.confidence) > 0.01, "a model that answers everything alike would prove nothing"
    assert torch.equal(image, before)


def test_deletion_curve_by_hand():
    """Three pixels of 1 in one channel: the logit falls from 3 to 2 to 0, against 0 for the other class."""
    curve = pc.deletion_curve(brightness, torch.ones(1, 1, 3), 0, pc.order_masks([2, 0, 1], (1, 3), (34, 100)))
    first, second = (1 / (1 + math.exp(-logit)) for logit in (3, 2))
    assert curve.confidence == pytest.approx([first, second, 0.5])
    assert curve.deleted == pytest.approx([0, 100 / 3, 100])
    assert curve.area == pytest.approx(((first + second) / 2 + (second + 0.5) / 2) / 2)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_area_is_the_trapezoid_rule_over_equal_steps(confidence):
    curve = pc.DeletionCurve(np.linspace(0, 50, len(confidence)) ** 2, np.array(confidence))
    steps = len(confidence) - 1
    slow = sum((confidence[i] + confidence[i + 1]) / 2 / steps for i in range(steps))
    assert curve.area == pytest.approx(slow, abs=1e-12)
    assert min(confidence) - 1e-12 <= curve.area <= max(confidence) + 1e-12


def test_deletion_runs_once_without_gradients_on_the_models_device(monkeypatch):
    class Elsewhere:
        device = torch.device("meta")
        calls = 0

        def __call__(self, images):
            self.calls += 1
            assert images.shape == (3, 1, 2, 2)
            assert torch.is_inference_mode_enabled()
            return torch.zeros(3, 2)

    model, moved = Elsewhere(), []

    def move(tensor, device):
        moved.append((tuple(tensor.shape), device))
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", move)
    curve = pc.deletion_curve(model, np.ones((1, 2, 2), dtype=np.float64), 1, np.ones((2, 2, 2), dtype=bool))
    assert model.calls == 1
    assert sorted(moved) == [((1, 2, 2), model.device), ((3, 2, 2), model.device)]
    assert curve.confidence.tolist() == [0.5, 0.5, 0.5]


def test_deleting_the_cup_costs_the_embedded_model_its_espresso(embedded):
    if find_spec("skimage") is None:
        pytest.skip("scikit-image, which has the photograph, is not installed: pip install 'pixelcert[demo]'")
    from pixelcert.models.loading import photographs

    image = pc.load_image(photographs()[0])
    target, confidence = embedded.predict(image)
    rows, columns = np.mgrid[:224, :224]
    from_centre = np.hypot(rows - 112, columns - 112)
    labels = {
        5: np.where(from_centre < 28, 1, pc.ABSTAIN),
        25: np.where(from_centre < 63, 1, 0),
        50: np.where(from_centre < 89, 1, 0),
    }
    masks = pc.deletion_masks(labels)
    curve = pc.deletion_curve(embedded, image, target, masks)
    assert curve.confidence[0] == pytest.approx(confidence, rel=1e-4)
    for mask, point in zip(masks, curve.confidence[1:], strict=True):
        changed = image.clone()
        changed[:, torch.from_numpy(mask)] = 0
        with torch.no_grad():
            single = float(embedded(changed[None]).softmax(dim=1)[0, target])
        assert point == pytest.approx(single, rel=1e-3, abs=1e-6)
    border_first = np.argsort(-from_centre.ravel(), kind="stable")
    border = pc.order_masks(border_first, (224, 224), curve.deleted[1:])
    assert curve.confidence[-1] < 0.5 < 0.9 < curve.confidence[0]
    assert curve.area < pc.deletion_curve(embedded, image, target, border).area


# ── AggAtt ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bins_of_a_hundred_grids_are_the_papers():
    scores = np.random.default_rng(0).permutation(100) / 100
    bins = pc.agg_att_bins(scores)
    assert [len(index) for index in bins] == [2, 3, 45, 45, 3, 2]
    assert scores[bins[0]].tolist() == [0.99, 0.98]
    assert scores[bins[-1]].tolist() == [0.01, 0.0]


def test_bins_of_few_grids_by_hand():
    """Ranks 0 to 3 of 4 are at 0, 25, 50 and 75 %: one in 0-2, one in 5-50, two in 50-95, none elsewhere."""
    bins = pc.agg_att_bins([0.1, 0.4, NAN, 0.3])
    assert [index.tolist() for index in bins] == [[1], [], [3], [0, 2], [], []]


def test_equal_scores_keep_their_order_and_undefined_ones_come_last():
    (order,) = pc.agg_att_bins([NAN, 0.5, 0.0, 0.5, NAN, 1.0, -math.inf], edges=(0, 100))
    assert order.tolist() == [5, 1, 3, 2, 6, 0, 4]


score_lists = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.5, NAN])), min_size=1, max_size=60)
edge_lists = st.one_of(
    st.just(EDGES),
    st.sets(st.floats(0, 100, exclude_min=True, exclude_max=True), max_size=5).map(lambda mid: (0, *sorted(mid), 100)),
)


@settings(max_examples=examples(60))
@given(score_lists, edge_lists)
def test_bins_part_all_grids_by_rank(scores, edges):
    bins = pc.agg_att_bins(scores, edges)
    ranking = sorted(
        range(len(scores)), key=lambda i: (math.isnan(scores[i]), 0 if scores[i] != scores[i] else -scores[i])
    )
    for (low, high), index in zip(pairwise(edges), bins, strict=True):
        percents = [Fraction(100 * rank, len(scores)) for rank in range(len(scores))]
        expected = [i for i, p in zip(ranking, percents, strict=True) if Fraction(str(low)) <= p < Fraction(str(high))]
        assert index.tolist() == expected
    assert sorted(np.concatenate(bins)) == list(range(len(scores)))


def test_bin_edges_are_exact():
    """0.07 % of 10 000 grids are 7. Floating point makes it 7.000000000000001 and would let an eighth in."""
    bins = pc.agg_att_bins(np.arange(10_000), edges=(0, 0.07, 0.29, 100))
    assert [len(index) for index in bins] == [7, 22, 9971]


def test_agg_att_is_the_mean_map_of_each_bin():
    """From best to worst the grids are 1, 3, 0, 2: one in the first bin, one in the third, two in the fourth."""
    maps = np.array([[[4.0, 0.0]], [[1.0, 2.0]], [[0.0, 1.0]], [[8.0, 8.0]]])
    means = pc.agg_att(maps, [0.1, 0.4, NAN, 0.3])
    assert means.shape == (6, 1, 2)
    assert means[[0, 2, 3]].tolist() == [[[1, 2]], [[8, 8]], [[2, 0.5]]]
    assert np.isnan(means[[1, 4, 5]]).all()


@settings(max_examples=examples(50))
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30, unique=True), st.integers(0, 2**32 - 1))
def test_agg_att_does_not_depend_on_the_order_of_the_grids(scores, seed):
    random = np.random.default_rng(seed)
    maps, shuffle = random.random((len(scores), 2, 3)), random.permutation(len(scores))
    means = pc.agg_att(maps, scores)
    np.testing.assert_allclose(pc.agg_att(maps[shuffle], np.array(scores)[shuffle]), means)
    sizes = np.array([len(index) for index in pc.agg_att_bins(scores)])
    weighted = (np.nan_to_num(means) * sizes[:, None, None]).sum(axis=0) / len(scores)
    np.testing.assert_allclose(weighted, maps.mean(axis=0))


def test_maps_in_half_precision_are_averaged_in_double():
    """The 135 maps of a wide bin sum to 135 000, and half precision ends at 65 504."""
    maps = np.full((300, 1, 1), 1000, dtype=np.float16)
    assert np.unique(pc.agg_att(maps, np.arange(300))).tolist() == [1000]


# ── Arguments ─────────────────────────────────────────────────────────────────────────────────────────────────────

ONES, MASKS = np.ones((4, 4)), np.ones((1, 4, 4), dtype=bool)
IMAGE = torch.ones(1, 4, 4)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: pc.shares([1, 0]), r"labels has shape \(2,\).*\(H, W\)"),
    (lambda: pc.percent_certified(np.zeros((0, 4))), r"labels has shape \(0, 4\)"),
    (lambda: pc.shares([[1, 2]]), r"labels holds 2.*ABSTAIN \(-1\)"),
    (lambda: pc.percent_certified([[NAN]]), "labels holds nan"),
    (lambda: pc.cell_mask(4, 6, 4, 0), "m=4 does not divide a grid of 4 × 6.*multiples of 4"),
    (lambda: pc.cell_mask(6, 4, 4, 0), "m=4 does not divide a grid of 6 × 4"),
    (lambda: pc.cell_mask(0, 4, 2, 0), "0 × 4"),
    (lambda: pc.cell_mask(4, 4, 2, 4), "cell=4 is not a whole number from 0 to 3"),
    (lambda: pc.cell_mask(4, 4, 2, -1), "cell=-1"),
    (lambda: pc.cell_mask(4, 4, 2, 0.5), r"cell=0\.5"),
    (lambda: pc.cell_mask(4, 4, 0, 0), "m=0.*such as 2"),
    (lambda: pc.random_baseline(1.5), r"m=1\.5"),
    (lambda: pc.grid_pg([[1, NAN], [1, math.inf]], 2, 0), "attribution has 2 values that are NaN or infinite"),
    (lambda: pc.grid_pg([1, 2], 1, 0), r"attribution has shape \(2,\)"),
    (lambda: pc.certified_grid_pg([[0.3]], 1, 0), r"labels holds 0\.3"),
    (lambda: pc.certified_interval([[3]], 1, 0), "labels holds 3"),
    (lambda: pc.certified_interval(ONES, 3, 0), "m=3"),
    (lambda: pc.deletion_masks({}), "labels is empty.*certificate.labels"),
    (lambda: pc.deletion_masks({5: ONES, 10: ONES[:2]}), r"labels has maps of shapes \[\(2, 4\), \(4, 4\)\]"),
    (lambda: pc.deletion_masks({5: ONES, 10: 7 * ONES}), r"labels\[10\] holds 7"),
    (lambda: pc.order_masks([0.5], (4, 4), (5,)), "order is float64"),
    (lambda: pc.order_masks([[1]], (4, 4), (5,)), r"order is int64 of shape \(1, 1\)"),
    (lambda: pc.order_masks([16], (4, 4), (5,)), "order holds indices from 16 to 16: size has 0 to 15"),
    (lambda: pc.order_masks([-1, 2], (4, 4), (5,)), "order holds indices from -1 to 2"),
    (lambda: pc.order_masks([1, 1], (4, 4), (5,)), "order names a pixel twice"),
    (lambda: pc.order_masks([1], (4, 4), (5, 101)), "percents holds 101"),
    (lambda: pc.order_masks([1], (4, 4), (NAN,)), "percents holds nan"),
    (lambda: pc.order_masks([], (0, 4), (5,)), r"size=\(0, 4\)"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS.astype(int)), "masks is int64.*booleans"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS[:, :2]), r"masks is bool of shape \(1, 2, 4\).*4 × 4"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS[0]), r"masks is bool of shape \(4, 4\)"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS[:0]), "at least one step"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 2, MASKS), "target=2 .*0 to 1"),
    (lambda: pc.deletion_curve(brightness, IMAGE, -1, MASKS), "target=-1"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS, fill=2), "fill=2"),
    (lambda: pc.deletion_curve(brightness, IMAGE, 0, MASKS, fill=NAN), "fill=nan"),
    (lambda: pc.agg_att_bins([]), r"scores has shape \(0,\)"),
    (lambda: pc.agg_att_bins([1], edges=(0, 50)), r"edges=\(0, 50\).*end at 100"),
    (lambda: pc.agg_att_bins([1], edges=(0, 50, 50, 100)), "edges="),
    (lambda: pc.agg_att_bins([1], edges=(2, 100)), "edges="),
    (lambda: pc.agg_att_bins([1], edges=()), "edges="),
    (lambda: pc.agg_att(ONES, [1] * 4), r"maps has shape \(4, 4\) and scores \(4,\)"),
    (lambda: pc.agg_att(MASKS, [1, 2]), r"maps has shape \(1, 4, 4\) and scores \(2,\)"),
])  # fmt: skip
def test_arguments_without_a_meaning_are_refused(call, message):
    with pytest.raises(pc.ArgumentError, match=message):
        call()


@pytest.mark.parametrize(("model", "got"), [
    (lambda images: images, r"logits of shape \(2, 1, 4, 4\)"), (lambda images: None, "NoneType"),
])  # fmt: skip
def test_a_model_that_returns_no_logits_is_refused(model, got):
    with pytest.raises(pc.ExplainerError, match=f"model returned {got} for 2 images: return logits"):
        pc.deletion_curve(model, IMAGE, 0, MASKS)


def test_a_target_that_is_a_whole_float_or_a_tensor_is_taken_as_a_class():
    curves = [pc.deletion_curve(brightness, IMAGE, target, MASKS) for target in (1, 1.0, torch.tensor(1))]
    assert len({tuple(curve.confidence) for curve in curves}) == 1


def test_the_image_has_the_channels_that_the_model_takes():
    brightness_of_rgb = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).eval()
    brightness_of_rgb.channels = 3
    with pytest.raises(pc.ImageError, match="image has 1 channels and the model takes 3"):
        pc.deletion_curve(brightness_of_rgb, IMAGE, 0, MASKS)


def test_pixels_outside_zero_to_one_are_refused():
    with pytest.raises(pc.ImageError, match="values from 0 to 255"):
        pc.deletion_curve(brightness, torch.arange(256.0).reshape(1, 16, 16), 0, np.ones((1, 16, 16), dtype=bool))


def test_deletion_with_a_network_in_training_mode_is_refused():
    net = nn.Sequential(nn.Flatten(), nn.Dropout())
    with pytest.raises(pc.ModelError, match=r"training mode.*eval\(\)"):
        pc.deletion_curve(net, IMAGE, 0, MASKS)
    with pytest.raises(pc.ModelError, match=r"training mode.*eval\(\)"):
        pc.deletion_curve(lambda images: net(images), IMAGE, 0, MASKS)
