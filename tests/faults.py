"""Put faults into a copy of the code, one at a time, and tell which of them the tests catch.

    python tests/faults.py               every fault, after a run of the same tests without any
    python tests/faults.py --list        the faults by number
    python tests/faults.py --room study  those of one room
    python tests/faults.py --only 7      one of them
    python tests/faults.py --check       run nothing: say which faults no longer fit the code or its tests

A fault is known by the text that it replaces, not by a file, so that it survives when code moves.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    *("src", "tests", "bench", "studies", "docs", "pyproject.toml", "constraints.txt", "Makefile"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
)
SUFFIXES = {".py", ".js", ".html"}
TIMEOUT = 300  # seconds for the tests of one fault
LONGER = 3600  # seconds for those of all faults
ALL_PASSED, SOME_FAILED = 0, 1  # exit codes of pytest; all others say that it could not run


class Fault(NamedTuple):
    """A mistake: the text that it replaces, which occurs once, and the tests that should notice."""

    room: str
    about: str
    old: str
    new: str
    tests: str  # node ids


class Run(NamedTuple):
    """How a run of tests ended: pytest's exit code, or None where it took too long."""

    code: int | None
    failed: str  # the first test that failed
    seconds: float


class Verdict(NamedTuple):
    """What became of a fault."""

    word: Literal["caught", "SURVIVED", "BROKEN"]
    why: str
    seconds: float


FAULTS = (
    # ── root ──────────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "root",
        "the sign that is asked for is ignored",
        'PRESETS[preset] if sign is None else {**PRESETS[preset], "sign": sign}',
        "PRESETS[preset]",
        "tests/test_study_settings.py::test_sign_overrides_that_of_every_preset",
    ),
    Fault(
        "root",
        "the slack of snapping to the grid forgets the channels",
        "return math.sqrt(int(channels) * int(pixels)) * LATTICE",
        "return math.sqrt(int(pixels)) * LATTICE",
        "tests/test_certificate.py::test_radius_gives_up_what_snapping_to_the_grid_may_cost",
    ),
    Fault(
        "root",
        "an image with NaN passes",
        "if not (math.isfinite(low) and math.isfinite(high)):",
        "if math.isinf(low) or math.isinf(high):",
        "tests/test_image.py::test_values_that_are_not_finite_are_refused_and_counted",
    ),
    Fault(
        "root",
        "the corner of a photograph is cut out, not its centre",
        "left, top = (width - size) // 2, (height - size) // 2",
        "left, top = 0, 0",
        "tests/test_image.py::test_crop_is_in_the_middle",
    ),
    Fault(
        "root",
        "the noise ignores its seed",
        "first = torch.tensor([(key + 2**63) % 2**64 - 2**63], device=device)",
        "first = torch.tensor([0], device=device)",
        "tests/test_noise.py::test_seed_and_index_each_change_the_noise",
    ),
    Fault(
        "root",
        "sample indices begin anew in every chunk",
        "noise = standard_normal(key, chunk, image.numel(), image.device)",
        "noise = standard_normal(key, range(len(chunk)), image.numel(), image.device)",
        "tests/test_noise.py::test_noise_does_not_depend_on_how_it_is_chunked",
    ),
    Fault(
        "root",
        "all purposes share a stream",
        'f"pixelcert {seed} {purpose} {image}"',
        'f"pixelcert {seed} {image}"',
        "tests/test_noise.py::test_seed_purpose_and_image_each_have_a_stream_of_their_own",
    ),
    Fault(
        "root",
        "all images share a stream",
        'f"pixelcert {seed} {purpose} {image}"',
        'f"pixelcert {seed} {purpose}"',
        "tests/test_sample.py::test_images_draw_noise_of_their_own",
    ),
    Fault(
        "root",
        "the seed is known beforehand",
        "return secrets.randbits(63)",
        "return 0",
        "tests/test_sample.py::test_an_explainer_that_knows_the_noise_beforehand_certifies_nothing",
    ),
    Fault(
        "study",
        "a folder that lost its seed file draws another seed",
        "seed = known.seed if known and known.photographs == photographs else settings.seed",
        "seed = settings.seed",
        "tests/test_study_jobs.py::test_a_damaged_inventory_does_not_lose_the_seed_and_a_damaged_seed_is_refused",
    ),
    Fault(
        "study",
        "folders of the first release draw other noise",
        "if known is not None and not known.streams:",
        "if False:",
        "tests/test_study_jobs.py::test_a_folder_without_streams_keeps_its_noise",
    ),
    Fault(
        "root",
        "noise leaves the grid on which sums are exact",
        "noise = noise.mul_(sigma / LATTICE).round_().mul_(LATTICE)",
        "noise = noise.mul_(sigma / LATTICE).mul_(LATTICE)",
        "tests/test_noise.py::test_sum_of_image_and_noise_is_exact_in_float32",
    ),
    Fault(
        "root",
        "the class after the last one is taken for a class",
        "if classes is not None and number >= classes:",
        "if classes is not None and number > classes:",
        "tests/test_sample.py::test_bad_targets_are_refused",
    ),
    Fault(
        "root",
        "enlarging a constant map makes it uneven",
        "base = torch.where(constant, first, 0)",
        "base = torch.zeros_like(first)",
        "tests/test_sample.py::test_a_coarse_map_that_is_constant_stays_so_when_its_channels_are_summed_and_it_is_enlarged",
    ),
    Fault(
        "root",
        "the top K % has one pixel too few",
        'return math.floor(share * pixels) + 1 if rule == "rank"',
        'return math.floor(share * pixels) if rule == "rank"',
        "tests/test_ranking.py::test_number_of_ones_is_exact",
    ),
    Fault(
        "root",
        "pixels tied at the threshold vote for the outside",
        "under = torch.le if self.ties_below else torch.lt",
        "under = torch.le",
        "tests/test_ranking.py::test_ties_at_the_threshold_vote_for_neither_class",
    ),
    Fault(
        "root",
        "NaN pixels are counted as if they ranked first",
        "_values_at(descending, nans + first_outside - 1, past_end=-torch.inf)",
        "_values_at(descending, first_outside - 1, past_end=-torch.inf)",
        "tests/test_ranking.py::test_nan_makes_the_others_vote_only_when_sure",
    ),
    Fault(
        "root",
        "votes are read before all samples are counted",
        "return self.counted == self.plan.n",
        "return self.counted > 0",
        "tests/test_votes.py::test_incomplete_votes_are_not_read_early_and_say_how_to_resume",
    ),
    Fault(
        "root",
        "a radius map over all levels is tested as one over a single level",
        "levels = len(self.plan.levels) if joint else 1",
        "levels = 1",
        "tests/test_certificate.py::test_radius_map_over_all_levels_is_smaller",
    ),
    Fault(
        "root",
        "votes made by another version of torch count as the same",
        'COMPUTING = ("pixelcert", "torch", "torchvision")',
        'COMPUTING = ("pixelcert",)',
        "tests/test_votes.py::test_votes_made_by_another_version_are_of_another_function",
    ),
    Fault(
        "root",
        "the test forgets labels of the wrong sign",
        "return (ways * tail(k, n, tau) + flips * tail(k, n, 1 - tau)) * _SLACK",
        "return ways * tail(k, n, tau) * _SLACK",
        "tests/test_statistics.py::test_step_down_keeps_its_guard_against_wrong_signs",
    ),
    Fault(
        "root",
        "the joint correction counts every pixel once",
        '{"joint": 2 * int(pixels), "none": 1}',
        '{"joint": int(pixels), "none": 1}',
        "tests/test_statistics.py::test_counts_needed[0.75-100-89-88-96-97]",
    ),
    Fault(
        "root",
        "a radius is rounded up",
        "return max(0.0, float(sigma) * float(ndtri(float(probability))) / _SLACK)",
        "return max(0.0, float(sigma) * float(ndtri(float(probability))) * _SLACK)",
        "tests/test_statistics.py::test_radius_is_rounded_down_and_never_negative",
    ),
    Fault(
        "root",
        "the bounds of a radius map are one-sided",
        "float(alpha) / (2 * int(pixels) * int(levels))",
        "float(alpha) / (int(pixels) * int(levels))",
        "tests/test_statistics.py::test_radius_bound_is_clopper_and_pearsons",
    ),
    Fault(
        "root",
        "the pixels keep the share of alpha that the prediction takes",
        "statistics.prediction_votes_needed(plan.n, tau, own), criterion.alpha - own",
        "statistics.prediction_votes_needed(plan.n, tau, own), criterion.alpha",
        "tests/test_certificate.py::test_prediction_takes_its_share_of_alpha_from_the_pixels",
    ),
    Fault(
        "root",
        "a label needs one vote more than it should",
        "np.where(ones >= k, np.int8(1), np.where(zeros >= k,",
        "np.where(ones > k, np.int8(1), np.where(zeros > k,",
        "tests/test_certificate.py::test_labels_follow_the_votes_needed",
    ),
    Fault(
        "root",
        "a pixel with half of the guesses is guessed to be inside",
        "guessed_one = 2 * guess_ones > guess",
        "guessed_one = 2 * guess_ones >= guess",
        "tests/test_report.py::test_script_certifies_as_the_library_does[reference-10-255]",
    ),
    Fault(
        "root",
        "two batches are explained at the same time",
        "    with one_at_a_time:\n        maps, logits",
        "    if True:\n        maps, logits",
        "tests/test_threads.py::test_explanations_take_turns",
    ),
    # ── sampling ──────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "sampling",
        "a verification draws the recorded noise again",
        'key = stream(fresh_seed, "verification", votes.provenance.image)',
        'key = stream(fresh_seed, "pixels", votes.provenance.image)',
        "tests/test_verify.py::test_the_fresh_copies_have_noise_of_their_own_whatever_the_seed",
    ),
    Fault(
        "sampling",
        "a verification does not correct for its many labels",
        "return max(1, _certified(certificate))",
        "return 1",
        "tests/test_verify.py::test_a_true_certificate_is_hardly_ever_refuted",
    ),
    Fault(
        "sampling",
        "votes that do not come out again are no matter",
        "return bool(self.differing and not self.unlike and self.steady)",
        "return False",
        "tests/test_verify.py::test_true_labels_with_edited_votes_do_not_come_out_again",
    ),
    Fault(
        "sampling",
        "an error carries votes whose last check never ended",
        "for _ in ended:\n                    watch.check_again()\n                _accept(batch)",
        "_accept(batch)\n                for _ in ended:\n                    watch.check_again()",
        "tests/test_independence.py::test_an_error_in_the_last_check_keeps_only_what_was_checked",
    ),
    Fault(
        "sampling",
        "another kind of machine excuses everything",
        "self.refuted or self.dependence or self.mostly_lost or self._edited",
        "self.refuted or self.dependence or self._edited",
        "tests/test_verify.py::test_another_kind_of_machine_excuses_rounding_only",
    ),
    Fault(
        "sampling",
        "images are read when the seed is known",
        "image = check_image(subject.image, explainer.model.channels).clone()",
        "image = check_image(subject.image, explainer.model.channels)",
        "tests/test_verify.py::test_images_are_read_before_the_seed_is_drawn",
    ),
    Fault(
        "sampling",
        "fresh votes for neither label count for it",
        "kept = np.select([labels == 1, labels == 0], [ones, zeros], self.samples)",
        "kept = np.select([labels == 1, labels == 0], [self.samples - zeros, zeros], self.samples)",
        "tests/test_verify.py::test_votes_for_neither_label_count_against_it",
    ),
    Fault(
        "sampling",
        "verify runs code that a votes file names",
        'if not self.name and ":" in name:',
        "if False:",
        "tests/test_verify.py::test_code_that_a_file_names_is_not_run_unasked",
    ),
    Fault(
        "sampling",
        "plans of different noise are sampled together",
        "if len(noises) != 1:",
        "if len(noises) < 1:",
        "tests/test_study_siblings.py::test_plans_of_different_noise_are_refused",
    ),
    Fault(
        "sampling",
        "votes of another image or explainer are resumed",
        'if changed := source.differences(now):\n        raise ArgumentError(f"these votes cannot be resumed',
        'if changed := source.differences(source):\n        raise ArgumentError(f"these votes cannot be resumed',
        "tests/test_sample.py::test_resuming_with_another_image_or_explainer_is_refused",
    ),
    Fault(
        "sampling",
        "an interruption carries the last image that was begun, not the first",
        "raise Interrupted(*_rescue(begun[0], explainer, batch_size))",
        "raise Interrupted(*_rescue(begun[-1], explainer, batch_size))",
        "tests/test_loop.py::test_an_interruption_carries_the_first_unfinished_image_and_resumes_to_the_same_votes",
    ),
    Fault(
        "sampling",
        "a shared batch grows beyond its size",
        "samples = task.left[: batch_size - filled]",
        "samples = task.left[:batch_size]",
        "tests/test_loop.py::test_batches_are_full_until_the_last",
    ),
    Fault(
        "sampling",
        "memory that runs out with a single image ends sampling without a word",
        "if batch_size == 1 or not out_of_memory(error):",
        "if not out_of_memory(error):",
        "tests/test_loop.py::test_out_of_memory_with_single_images_is_an_error_with_the_votes",
    ),
    Fault(
        "sampling",
        "maps that depend on the rest of the batch are taken",
        "if suspects and not self._is_rounding(rows, suspects, maps):",
        "if False:",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[the-first-row-100]",
    ),
    Fault(
        "sampling",
        "only the first row of a batch is compared",
        "places = sorted({0, _between(size), size - 1}) if begins or not known else [size - 1]",
        "places = [0]",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[one-row-but-for-the-first-and-last-100]",
    ),
    Fault(
        "sampling",
        "the places of the rows that are compared can be known beforehand",
        "return 1 + secrets.randbelow(size - 2) if size > 2 else 0",
        "return size // 2 if size > 2 else 0",
        "tests/test_independence.py::test_places_are_drawn_between_the_first_and_the_last",
    ),
    Fault(
        "sampling",
        "an explainer sees votes in its first call",
        "if not self._called:",
        "if False:",
        "tests/test_independence.py::test_the_first_call_is_about_a_copy_that_is_not_counted",
    ),
    Fault(
        "sampling",
        "a large difference by the place in a batch is taken for rounding",
        "if any(_votes_differ(rows.plan, rows.maps[suspect], alone[suspect], 1) for suspect in suspects):",
        "if False:",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[the-place-in-the-batch-100]",
    ),
    Fault(
        "sampling",
        "a small dependence on the batch is taken for rounding",
        "return not self._differ(rows.plan, rows.maps[row], among_others)",
        "return True",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[two-lines-of-the-whole-batch-100]",
    ),
    Fault(
        "sampling",
        "a slight dependence on the batch is not seen in votes",
        'return exact and one.device.type == "cpu" and _values_differ(one, other)',
        "return False",
        "tests/test_independence.py::test_dynamic_quantisation_mixes_a_batch",
    ),
    Fault(
        "sampling",
        "no image is explained again after the samples",
        "watch.check_again()\n",
        "pass\n",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[changed-after-5-calls-7]",
    ),
    Fault(
        "sampling",
        "images are copied only after the explainer has seen them",
        "rows = rows and rows.answered(maps, answers)",
        "rows = rows and rows._replace(images=images[rows.places]).answered(maps, answers)",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[inputs-overwritten-100]",
    ),
    Fault(
        "sampling",
        "the maps of a check share the explainer's memory",
        "return explanation.maps[0].clone(), None if",
        "return explanation.maps[0], None if",
        "tests/test_independence.py::test_an_explainer_may_write_all_its_maps_to_the_same_memory",
    ),
    Fault(
        "sampling",
        "a check leaves the generators as it used them",
        "with put_back(), rounding(self._tuning, rows.images.device):",
        "with rounding(self._tuning, rows.images.device):",
        "tests/test_independence.py::test_global_generators_are_left_as_the_samples_leave_them_by_a_refusal",
    ),
    Fault(
        "sampling",
        "a check begins in the state that the explainer left",
        "        seed_all(_ELSEWHERE)\n",
        "",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[random-seeded-for-each-call-1]",
    ),
    Fault(
        "sampling",
        "the same random numbers for every image are taken",
        "if drew and self._ignores_the_image(rows, maps[0]):",
        "if False:",
        "tests/test_independence.py::test_cheats_are_refused_or_not_certified[random-seeded-for-each-call-1]",
    ),
    Fault(
        "sampling",
        "random numbers are accepted silently",
        "        if drew:\n            told",
        "        if False:\n            told",
        "tests/test_independence.py::test_random_numbers_that_are_the_same_for_equal_images_are_told",
    ),
    Fault(
        "sampling",
        "votes of a cheat are kept to be resumed",
        "(_NothingButNaNError, DependenceError)",
        "_NothingButNaNError",
        "tests/test_independence.py::test_nothing_is_kept_of_a_cheat",
    ),
    Fault(
        "sampling",
        "a method is checked for every image",
        "if kind in (examined or ()) or (kind in known and (examined is not None or not begins)):",
        "if kind in known and not begins:",
        "tests/test_independence.py::test_a_method_is_checked_once_for_its_network_size_and_batch",
    ),
    Fault(
        "sampling",
        "a user's explainer vouches for itself",
        "if type(self._explainer).__module__.startswith(_OWN) else None",
        "",
        "tests/test_independence.py::test_only_methods_of_this_package_vouch_for_batches",
    ),
    Fault(
        "sampling",
        "a method that was refused at the end is trusted the next time",
        "self._passed |= {_kind(rows.size, rows.images)}",
        "(self._examined or set()).add(_kind(rows.size, rows.images))",
        "tests/test_independence.py::test_an_explainer_that_was_refused_at_the_end_is_refused_again",
    ),
    Fault(
        "sampling",
        "an explainer of nothing but NaN is sampled to the end",
        "if not task.has_map and samples.stop >= min(task.plan.n, len(batch.nan)):",
        "if not task.has_map and samples.stop > task.plan.n:",
        "tests/test_loop.py::test_an_explainer_that_answers_nan_everywhere_is_refused_at_any_image",
    ),
    Fault(
        "sampling",
        "every batch is counted as guessing, not the first samples",
        "(guessing := plan.guess - self.counted) > 0",
        "(guessing := plan.guess) > 0",
        "tests/test_loop.py::test_guesses_are_of_each_images_own_first_samples",
    ),
    Fault(
        "sampling",
        "tied logits answer a class",
        "return torch.where(first > second, logits.argmax(dim=1), logits.shape[1])",
        "return torch.where(first >= second, logits.argmax(dim=1), logits.shape[1])",
        "tests/test_sample.py::test_nan_and_tied_logits_answer_nothing",
    ),
    Fault(
        "sampling",
        "a network is compiled for the shortest run",
        "if passes < _LONG:",
        "if False:",
        "tests/test_precision.py::test_auto_compiles_on_a_gpu_when_the_wait_pays",
    ),
    Fault(
        "sampling",
        "settings of the GPU stay changed after sampling",
        "cudnn.deterministic = before\n",
        "pass\n",
        "tests/test_precision.py::test_flags_are_put_back_after_an_error",
    ),
    Fault(
        "sampling",
        "a picture at another threshold takes the place of the first",
        'f"tau{criterion.tau}": criterion.tau != usual.tau,',
        'f"tau{criterion.tau}": False,',
        "tests/test_commands_votes.py::test_a_picture_at_other_settings_has_another_name",
    ),
    Fault(
        "sampling",
        "votes of one image tell the surgery of the next",
        "**(self.surgery or explainer.surgery)",
        "**explainer.surgery",
        "tests/test_surgery.py::test_each_image_tells_of_crops_at_its_own_size_though_the_next_is_begun",
    ),
    Fault(
        "sampling",
        "auto compiles a network that cannot be copied",
        "return _why_not_tuned(explainer, Tuning(1, precision, True))",
        'return ""',
        "tests/test_surgery.py::test_auto_that_does_not_compile_tells_why",
    ),
    Fault(
        "sampling",
        "two batches are counted at the same time",
        "                    with one_at_a_time:\n                        queued.append(",
        "                    if True:\n                        queued.append(",
        "tests/test_threads.py::test_votes_tell_of_their_own_batch",
    ),
    Fault(
        "root",
        "a criterion throws the float away and keeps the number that was given",
        "vars(self).update(tau=tau, alpha=alpha)  # assignment is frozen",
        "pass",
        "tests/test_plan.py::test_numbers_become_pythons_own_and_keep_their_value",
    ),
    Fault(
        "root",
        "an alpha whose parts underflow is accepted",
        "if alpha < LEAST_ALPHA:",
        "if alpha < 0:",
        "tests/test_plan.py::test_an_alpha_that_floats_cannot_share_among_pixels_is_refused",
    ),
    Fault(
        "root",
        "tails are computed in the precision of the numbers given, and kept for others",
        "return _tail(int(k), int(n), float(p)) if k <= n else 0.0",
        "return _tail(k, n, p) if k <= n else 0.0",
        "tests/test_statistics.py::test_every_public_function_computes_in_floats",
    ),
    Fault(
        "root",
        "thresholds are compared with alpha in its own precision",
        '_probability("tau", tau), _part_of(alpha)\n    majority',
        '_probability("tau", tau), alpha\n    majority',
        "tests/test_statistics.py::test_an_alpha_just_below_the_risk_is_not_rounded_up_to_it",
    ),
    Fault(
        "root",
        "statistics accept parts of alpha below which tails underflow",
        "lambda number: _LEAST_PART <= number < 1",
        "lambda number: number < 1",
        "tests/test_statistics.py::test_parts_of_alpha_whose_tails_underflow_are_refused",
    ),
    Fault(
        "root",
        "confidence is rounded to 28 digits",
        "with localcontext(Context(prec=400)):",
        "with localcontext(Context(prec=28)):",
        "tests/test_certificate.py::test_printed_confidence_is_exact_and_never_reaches_certainty",
    ),
    Fault(
        "root",
        "numbers are printed rounded to the nearest",
        ".quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR)",
        ".quantize(Decimal(1).scaleb(-digits))",
        "tests/test_statistics.py::test_rounded_down_is_never_above_the_value_and_less_than_a_digit_below",
    ),
    Fault(
        "root",
        "ends of intervals are rounded to the nearest",
        "return math.nextafter(value, bound) if inward else value",
        "return value",
        "tests/test_metrics.py::test_certified_interval_is_rounded_outward",
    ),
    Fault(
        "root",
        "counts wrap around as they are read",
        "if not 0 <= array.min() <= array.max() <= most:",
        "array = array.astype(np.int32)\n    if not 0 <= array.min() <= array.max() <= most:",
        "tests/test_files.py::test_counts_that_no_samples_give_are_refused",
    ),
    Fault(
        "root",
        "counts that are no whole numbers are read",
        'if array.dtype.kind not in "iu":',
        'if array.dtype.kind not in "iufb":',
        "tests/test_files.py::test_counts_that_no_samples_give_are_refused",
    ),
    Fault(
        "root",
        "ones and zeros are added in 32 bits",
        "if (zeros > counted - ones).any():",
        "if (zeros + ones > counted).any():",
        "tests/test_files.py::test_ones_and_zeros_are_added_without_wrapping",
    ),
    Fault(
        "root",
        "top sets of a file need not be nested",
        "if (ones[low] > ones[high]).any() or (zeros[low] < zeros[high]).any():",
        "if False:",
        "tests/test_files.py::test_top_sets_that_are_not_nested_are_refused",
    ),
    Fault(
        "root",
        "top sets of a file may be larger than K %",
        "if ones[place].sum(dtype=np.int64) > inside:",
        "if False:",
        "tests/test_files.py::test_top_sets_larger_than_k_percent_are_refused",
    ),
    Fault(
        "root",
        "the percentile rule's ties are too many zeros",
        'outside = samples * (self.pixels - (size if plan.rule == "rank" else 0))',
        "outside = samples * (self.pixels - size)",
        "tests/test_files.py::test_votes_of_every_map_are_possible",
    ),
    Fault(
        "root",
        "a plan's unknown part is ignored",
        '_refuse_newer("plan.", header["plan"], names)',
        'header = {**header, "plan": {name: value for name, value in header["plan"].items() if name in names}}',
        "tests/test_files.py::test_what_changes_the_meaning_of_labels_is_never_ignored",
    ),
    Fault(
        "root",
        "a denoiser in a provenance is ignored",
        '_CHANGING = ("denoiser", "threat")',
        "_CHANGING = ()",
        "tests/test_files.py::test_what_changes_the_meaning_of_labels_is_never_ignored",
    ),
    Fault(
        "root",
        "a plan that lacks a field gets its default",
        "if missing := [name for name in _FIRST if name not in given]:",
        'if missing := [name for name in ("n", "seed", "guess") if name not in given]:',
        "tests/test_files.py::test_plan_that_lacks_a_field_gets_no_default",
    ),
    Fault(
        "root",
        "arrays of a later version are lost",
        "return write_arrays(path, KIND, VERSION, header, {**self.more, **arrays, **photo})",
        "return write_arrays(path, KIND, VERSION, header, {**arrays, **photo})",
        "tests/test_files.py::test_what_only_adds_survives_and_certifies_nothing_else",
    ),
    # ── basics ────────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "basics",
        "a key may be there twice",
        "if len(found := dict(pairs)) < len(pairs):",
        "if not (found := dict(pairs)) and pairs:",
        "tests/test_files.py::test_sealed_json_that_readers_differ_on_is_refused",
    ),
    Fault(
        "basics",
        "sealed JSON may hold NaN",
        "json.dumps(content, allow_nan=False)",
        "json.dumps(content)",
        "tests/test_files.py::test_sealed_json_that_readers_differ_on_is_refused",
    ),
    Fault(
        "basics",
        "a network in training mode hides among the globals",
        'if step.opname == "LOAD_GLOBAL"',
        'if step.opname == "LOAD_NOTHING"',
        "tests/test_training.py::test_networks_in_training_mode_are_found_wherever_they_are_held",
    ),
    Fault(
        "basics",
        "dropout without weights of its own may be in training mode",
        "return isinstance(module, apart) or any(",
        "return any(",
        "tests/test_training.py::test_modules_without_weights_that_tell_modes_apart_are_refused",
    ),
    Fault(
        "basics",
        "generators are not put back",
        "            random.setstate(python)\n",
        "",
        "tests/test_generators.py",
    ),
    Fault(
        "basics",
        "what was half written stays in the folder",
        "    except BaseException as error:\n        temporary.unlink(missing_ok=True)\n",
        "    except BaseException as error:\n",
        "tests/test_files.py::test_crash_while_writing_leaves_the_old_file_and_no_other",
    ),
    Fault(
        "basics",
        "a file replaces the old one before it is on the disk",
        "os.fsync(file.fileno())",
        "file.fileno()",
        "tests/test_files.py::test_data_is_on_the_disk_before_it_replaces_the_old_file",
    ),
    Fault(
        "basics",
        "a damaged file is read",
        'if header.pop("checksum", None) != _checksum(header, arrays):',
        'if header.pop("checksum", None) is None:',
        "tests/test_files.py::test_changed_header_is_noticed",
    ),
    Fault(
        "basics",
        "a file of a newer layout is read",
        "if type(found) is not int or not 1 <= found <= known:",
        "if type(found) is not int or not 1 <= found:",
        "tests/test_files.py::test_newer_file_asks_for_an_upgrade",
    ),
    Fault(
        "basics",
        "a full disk is taken for any other error",
        "_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}",
        "_FULL = {errno.EDQUOT}",
        "tests/test_study_store.py::test_disk_that_is_full_is_told_from_other_failures",
    ),
    Fault(
        "basics",
        "TF32 stays as the block set it",
        "for switch in before:\n                setattr(*switch)",
        "for switch in before:\n                getattr(*switch)",
        "tests/test_precision.py::test_flags_are_put_back_after_an_error",
    ),
    Fault(
        "basics",
        "a compiler named in the environment is not found",
        'compilers = (os.environ.get("CC"), os.environ.get("CXX"), "cc",',
        'compilers = ("cc",',
        "tests/test_precision.py::test_a_compiler_is_looked_for_under_its_usual_names_and_in_the_environment",
    ),
    Fault(
        "basics",
        "a GPU without Triton is compiled for",
        'if device.type == "cuda" and find_spec("triton") is None:',
        'if device.type == "cuda" and find_spec("torch") is None:',
        "tests/test_precision.py::test_a_gpu_needs_triton_too",
    ),
    Fault(
        "basics",
        "a device that does not work is not refused",
        "torch.zeros(1, device=device or None).item()",
        "str(device)",
        "tests/test_commands_study.py::test_a_device_that_cannot_be_used_is_refused_before_models_are_loaded",
    ),
    Fault(
        "basics",
        "an error does not say which file it is about",
        'raise type(error)(f"{subject}: {error}") from error',
        "raise",
        "tests/test_commands_votes.py::test_show_names_the_file_that_cannot_reach_tau",
    ),
    Fault(
        "basics",
        "a digest is of the first part only",
        "for part in parts:\n        digest.update(part)",
        "for part in parts[:1]:\n        digest.update(part)",
        "tests/test_image.py::test_hash_depends_on_every_pixel",
    ),
    Fault(
        "basics",
        "two threads set the rounding of all at the same time",
        "    with one_at_a_time:\n        before = [(*switch,",
        "    if True:\n        before = [(*switch,",
        "tests/test_threads.py::test_rounding_stays_as_a_thread_has_set_it",
    ),
    # ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "metrics",
        "the worst grids come first",
        'best_first = np.argsort(-values, kind="stable")',
        'best_first = np.argsort(values, kind="stable")',
        "tests/test_metrics.py::test_bins_of_few_grids_by_hand",
    ),
    Fault(
        "metrics",
        "maps in half precision are averaged in half precision",
        "stack[index].mean(axis=0, dtype=np.float64)",
        "stack[index].mean(axis=0, dtype=stack.dtype)",
        "tests/test_metrics.py::test_maps_in_half_precision_are_averaged_in_double",
    ),
    Fault(
        "metrics",
        "pixels certified inside and outside are mixed up",
        "for label in (1, 0, ABSTAIN)))",
        "for label in (0, 1, ABSTAIN)))",
        "tests/test_metrics.py::test_shares_of_a_map_counted_by_hand",
    ),
    Fault(
        "metrics",
        "the area below a curve is the mean of its points",
        "(self.confidence[:-1] + self.confidence[1:]).mean() / 2",
        "self.confidence.mean()",
        "tests/test_metrics.py::test_area_is_the_trapezoid_rule_over_equal_steps",
    ),
    Fault(
        "metrics",
        "pixels that were deleted come back",
        "return np.logical_or.accumulate(np.stack(steps))",
        "return np.stack(steps)",
        "tests/test_metrics.py::test_deletion_takes_the_smallest_level_first_and_brings_nothing_back",
    ),
    Fault(
        "metrics",
        "of pixels of one level the one with the fewest votes comes first",
        "np.lexsort((-votes_of.ravel(), level_of.ravel()))",
        "np.lexsort((votes_of.ravel(), level_of.ravel()))",
        "tests/test_metrics.py::test_certificates_order_is_by_level_then_votes_then_index",
    ),
    Fault(
        "metrics",
        "the number of deleted pixels suffers from rounding",
        "math.floor(Fraction(str(percent)) * pixels / 100)",
        "math.floor(percent / 100 * pixels)",
        "tests/test_metrics.py::test_order_masks_count_exactly",
    ),
    Fault(
        "metrics",
        "cells are numbered column by column",
        'row, column = divmod(check_whole("cell", cell, 0, m * m - 1, example=0), m)',
        'column, row = divmod(check_whole("cell", cell, 0, m * m - 1, example=0), m)',
        "tests/test_metrics.py::test_cells_are_numbered_row_by_row_and_tile_the_grid",
    ),
    Fault(
        "metrics",
        "the lower end of an interval forgets pixels that abstain",
        "if most := int(a_in + a_out + u_out):",
        "if most := int(a_in + a_out):",
        "tests/test_metrics.py::test_certified_interval_by_hand",
    ),
    Fault(
        "metrics",
        "negative attributions count as positive ones",
        "positive = values.clip(min=0)",
        "positive = np.abs(values)",
        "tests/test_metrics.py::test_grid_pg_by_hand",
    ),
    # ── models ────────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "models",
        "a folded batch norm loses the scale of its shift",
        "bias = shift * scale if norm.bias is None else shift * scale + norm.bias",
        "bias = shift if norm.bias is None else shift + norm.bias",
        "tests/test_tuned_copies.py::test_batch_norms_are_gone_where_they_can_be_folded",
    ),
    Fault(
        "models",
        "a batch norm is folded although its input is read elsewhere",
        "and self._readers[id(norm.inputs)] == 1",
        "and self._readers[id(norm.inputs)] >= 1",
        "tests/test_lrp.py::test_a_batch_norm_whose_convolution_is_read_elsewhere_stays_and_is_told",
    ),
    Fault(
        "models",
        "images are multiplied by the standard deviation",
        "return ((images - self._mean) / self._std)",
        "return ((images - self._mean) * self._std)",
        "tests/test_classifier.py::test_normalisation_comes_before_the_network",
    ),
    Fault(
        "models",
        "the hash of a model forgets its preprocessing",
        'tensors = [("", model._mean), ("", model._std), *state]',
        "tensors = [*state]",
        "tests/test_classifier.py::test_hash_changes_with_the_preprocessing",
    ),
    Fault(
        "models",
        "a network in training mode is explained",
        "if any(module.training for module in modules):",
        "if not modules:",
        "tests/test_sample.py::test_a_network_in_training_mode_is_refused",
    ),
    Fault(
        "models",
        "what was found out is kept although a weight has changed",
        "if values != self._values:",
        "if len(values) != len(self._values):",
        "tests/test_classifier.py::test_hash_changes_with_a_weight_changed_after_it_was_first_read",
    ),
    Fault(
        "models",
        "the reach of a convolution forgets its dilation",
        "ahead = dilation * (kernel - 1) - padding",
        "ahead = kernel - 1 - padding",
        "tests/test_cropping.py::test_no_part_reaches_further_than_it_says",
    ),
    Fault(
        "models",
        "windows are laid out column by column",
        "windows = windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)",
        "windows = windows.permute(0, 3, 2, 1, 4, 5).flatten(1, 2)",
        "tests/test_grids.py::test_layers_of_the_head_are_maps_of_the_windows_in_rows",
    ),
    Fault(
        "models",
        "the class token is laid out as a patch",
        "return features[:, prefix:].transpose(1, 2)",
        "return features[:, : features.shape[1] - prefix].transpose(1, 2)",
        "tests/test_splitting.py::test_tokens_become_maps_row_by_row_without_the_class_token",
    ),
    Fault(
        "models",
        "code in a weights file is run",
        '            return load_file(path)\n        state = torch.load(path, map_location="cpu", weights_only=True)',
        '            return load_file(path)\n        state = torch.load(path, map_location="cpu", weights_only=False)',
        "tests/test_loading.py::test_pickled_code_is_refused_and_never_runs",
    ),
    Fault(
        "models",
        "the network does not see what a ReLU does in place",
        "return values.copy_(self._stand_in(values.clone(), ceiling))",
        "return self._stand_in(values.clone(), ceiling)",
        "tests/test_method_oracles.py::test_guided_backprop_leaves_in_place_values_as_the_network_sees_them",
    ),
    Fault(
        "models",
        "a convolution is fused although others read its answer",
        "if found is None or len(node.users) != 1 or found.bias is None:",
        "if found is None or found.bias is None:",
        "tests/test_folding.py::test_a_fused_network_answers_the_same",
    ),
    Fault(
        "models",
        "a batch norm of another class is said to follow no convolution",
        "alone = len(record.batch_norms) - folded - parted - special",
        "alone, special = len(record.batch_norms) - folded - parted, 0",
        "tests/test_surgery.py::test_votes_tell_each_step_and_its_reason",
    ),
    Fault(
        "models",
        "a split by hooks is silent",
        'model.surgery(layer).note("split", "hooks", why)',
        "pass",
        "tests/test_surgery.py::test_votes_tell_each_step_and_its_reason",
    ),
    Fault(
        "models",
        "a head that slides is forgotten at another size",
        '(step, *arguments["steps"]) if step.done == "same network" else',
        '(step, *arguments["steps"]) if not step.done else',
        "tests/test_surgery.py::test_a_head_that_slides_at_one_size_is_told_to_slide_at_others",
    ),
    Fault(
        "models",
        "a trace follows the networks of other threads too",
        "return super().call_module(m, forward, args, kwargs) if self._tracing else forward(*args, **kwargs)",
        "return super().call_module(m, forward, args, kwargs)",
        "tests/test_threads.py::test_other_threads_run_their_networks_during_a_trace",
    ),
    Fault(
        "models",
        "two networks are traced at the same time",
        "with one_at_a_time:  # two traces would",
        "if True:  # two traces would",
        "tests/test_threads.py::test_one_network_is_traced_at_a_time",
    ),
    Fault(
        "models",
        "foreign code is given the symbols of a trace",
        '*("numpy", "tolist", "data_ptr",',
        '*("tolist", "data_ptr",',
        "tests/test_threads.py::test_foreign_code_is_never_given_symbols",
    ),
    Fault(
        "models",
        "two threads find out the same thing",
        "        with one_at_a_time:\n            if self._watched:",
        "        if True:\n            if self._watched:",
        "tests/test_threads.py::test_an_answer_is_found_once_for_all_threads",
    ),
    Fault(
        "models",
        "a network is traced although that is switched off",
        "    if not model.trace:\n        check_layer(",
        "    if model.trace is None:\n        check_layer(",
        "tests/test_threads.py::test_a_network_is_not_traced_if_that_is_switched_off",
    ),
    # ── methods ───────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "methods",
        "before a linear head the gradient is not shared among positions",
        "return (self.weight[targets] / features[0, 0].numel())[",
        "return self.weight[targets][",
        "tests/test_method_oracles.py::test_closed_forms_agree_with_running_the_head[grad]",
    ),
    Fault(
        "methods",
        "Guided Backprop passes negative gradients back",
        "passed = torch.where(clamped > 0, gradient, 0).clamp_min_(0)",
        "passed = torch.where(clamped > 0, gradient, 0)",
        "tests/test_method_oracles.py::test_guided_backprop_agrees_with_captum",
    ),
    Fault(
        "methods",
        "Integrated Gradients walk from minus one",
        "return [(float(node + 1) / 2, float(weight) / 2)",
        "return [(float(node), float(weight) / 2)",
        "tests/test_method_oracles.py::test_integrated_gradients_agree_with_one_gradient_after_the_other",
    ),
    Fault(
        "methods",
        "LRP ignores biases in its denominator",
        "bias = None if bias is None else bias.clamp(min=0)",
        "bias = None",
        "tests/test_lrp.py::test_small_networks_agree_with_zennit",
    ),
    Fault(
        "methods",
        "attention keeps all of its relevance for the values",
        "value = _scale(value, 0.5 if attends else 1.0)",
        "value = _scale(value, 1.0)",
        "tests/test_lrp.py::test_attention_shares_relevance_by_the_formulas_of_attn_lrp",
    ),
    Fault(
        "methods",
        "Grad-CAM++ counts negative gradients",
        "((alphas * slopes.relu()).sum(",
        "((alphas * slopes).sum(",
        "tests/test_method_oracles.py::test_grad_cam_plus_plus_agrees_with_its_definition",
    ),
    Fault(
        "methods",
        "Ablation-CAM does not divide by the logit",
        "weights = drops / whole.where(whole != 0, 1)",
        "weights = drops",
        "tests/test_method_oracles.py::test_ablation_cam_agrees_with_zeroing_channels_and_rerunning_the_network",
    ),
    Fault(
        "methods",
        "the last window of Occlusion stops before the edge",
        "return [(begin, min(begin + self._window(), side) - 1) for begin in begins]",
        "return [(begin, min(begin + self._window(), side - 1) - 1) for begin in begins]",
        "tests/test_method_oracles.py::test_occlusion_agrees_with_captum",
    ),
    Fault(
        "methods",
        "RISE ignores the seed of its masks",
        "generator = torch.Generator().manual_seed(seed)\n    on =",
        "generator = torch.Generator().manual_seed(0)\n    on =",
        "tests/test_method_oracles.py::test_rise_masks_are_a_function_of_their_seed",
    ),
    Fault(
        "methods",
        "rows and columns of windows are mixed up",
        "return rows.repeat_interleave(len(columns), dim=0), columns.repeat(len(rows), 1)",
        "return rows.repeat(len(columns), 1), columns.repeat_interleave(len(rows), dim=0)",
        "tests/test_cropping.py::test_crops_answer_what_the_whole_network_answers",
    ),
    Fault(
        "methods",
        "a copy of the model is used although the network has changed",
        "return model.recall(self, lambda",
        "return self.model.recall(self, lambda",
        "tests/test_tuned_copies.py::test_votes_of_a_changed_network_are_those_of_the_changed_network",
    ),
    # ── adapters ──────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "adapters",
        "the seed of a random explanation is ignored",
        "sha256(image.cpu().numpy(), str(self._seed).encode())",
        "sha256(image.cpu().numpy())",
        "tests/test_adapters.py::test_random_explanations_become_functions_of_the_image_and_the_seed",
    ),
    Fault(
        "adapters",
        "random numbers depend on the place in the batch",
        "for image in images.contiguous()]",
        "for image in images.cumsum(dim=0)]",
        "tests/test_adapters.py::test_random_explanations_become_functions_of_the_image_and_the_seed",
    ),
    Fault(
        "adapters",
        "all images share their random numbers",
        "sha256(image.cpu().numpy(), str(self._seed).encode())",
        "sha256(str(self._seed).encode())",
        "tests/test_independence.py::test_random_numbers_through_an_adapter_are_those_of_each_image",
    ),
    Fault(
        "adapters",
        "the network keeps gradients that it did not have",
        "parameter.grad = gradient\n",
        "pass\n",
        "tests/test_adapters.py::test_the_network_is_left_as_found",
    ),
    Fault(
        "adapters",
        "a layer that the network calls twice is explained",
        "if calls[layer] > calls[model.net]]",
        "if calls[layer] > 2 * calls[model.net]]",
        "tests/test_adapters.py::test_a_layer_that_is_called_twice_is_refused_for_grad_cam",
    ),
    Fault(
        "adapters",
        "a foreign function changes our images in place",
        "values.detach().cpu().numpy().copy()",
        "values.detach().cpu().numpy()",
        "tests/test_adapters.py::test_a_numpy_function_sees_pixels_and_may_answer_coarse_channels_in_place",
    ),
    Fault(
        "adapters",
        "a Quantus function sees images that are not normalised",
        "_as_array(inputs), _as_array(targets)",
        "_as_array(images), _as_array(targets)",
        "tests/test_adapters.py::test_maps_are_those_of_the_foreign_object_on_each_normalised_image",
    ),
    Fault(
        "adapters",
        "settings are recorded with addresses that change from run to run",
        'return getattr(value, "__qualname__", type(value).__qualname__)',
        "return repr(value)",
        "tests/test_adapters.py::test_settings_are_values_that_another_process_would_give_too",
    ),
    Fault(
        "adapters",
        "a Captum attribution may mix the images of a batch",
        "if kind in _MIXING:",
        "if name in _MIXING:",
        "tests/test_adapters.py::test_captum_arguments_are_checked_at_the_door",
    ),
    Fault(
        "adapters",
        "torch-cam explains the first target for all images",
        "maps = extractor(targets.tolist(), logits, **kwargs)",
        "maps = extractor(int(targets[0]), logits, **kwargs)",
        "tests/test_adapters.py::test_a_batch_is_its_images_one_by_one",
    ),
    Fault(
        "adapters",
        "two threads set the same random generators",
        "with one_at_a_time:\n        python, numpy",
        "if True:\n        python, numpy",
        "tests/test_threads.py::test_functions_that_draw_random_numbers_do_not_disturb_each_other",
    ),
    # ── photographs ───────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "photographs",
        "the order of photographs ignores the seed",
        "shuffled(stream(request.seed, Purpose.ORDER), len(ordered))",
        "shuffled(stream(0, Purpose.ORDER), len(ordered))",
        "tests/test_choosing.py::test_only_the_seed_decides",
    ),
    Fault(
        "photographs",
        "the filter forgets to look at the class",
        "if sure >= confidence and chosen.target in (None, answer):",
        "if sure >= confidence:",
        "tests/test_choosing.py::test_filter_keeps_what_every_model_gets_right_with_confidence",
    ),
    Fault(
        "photographs",
        "hidden files are taken for photographs",
        'if not any(part.startswith(".") for part in inside.parts):',
        "if inside.parts:",
        "tests/test_folder.py::test_plain_folder_has_no_targets",
    ),
    Fault(
        "photographs",
        "grids are laid column by column",
        "rows = [torch.cat(list(images[start : start + m]), dim=2)",
        "rows = [torch.cat(list(images[start // m :: m]), dim=2)",
        "tests/test_selection.py::test_grid_is_laid_row_by_row",
    ),
    Fault(
        "photographs",
        "a photograph takes the seat of another of its class",
        "if target not in grid and len(grid) < self._size:",
        "if len(grid) < self._size:",
        "tests/test_choosing.py::test_photographs_are_used_once_while_there_are_enough",
    ),
    Fault(
        "photographs",
        "classes of ImageNet are off by one",
        "found = {name: rank for rank, name in enumerate(order)}",
        "found = {name: rank for rank, name in enumerate(order, 1)}",
        "tests/test_imagenet.py::test_kaggles_solution_tells_the_classes",
    ),
    Fault(
        "photographs",
        "labels may name files outside of the folder",
        'if not file or inside.parts[:1] == ("..",) or not (folder / inside).is_file():',
        "if not file or not (folder / inside).is_file():",
        "tests/test_folder.py::test_files_outside_the_folder_are_refused",
    ),
    Fault(
        "photographs",
        "a spreadsheet's mark hides the first column",
        'with path.open(encoding="utf-8-sig", newline="") as file:',
        'with path.open(encoding="utf-8", newline="") as file:',
        "tests/test_folder.py::test_a_spreadsheets_mark_does_not_hide_the_first_column",
    ),
    Fault(
        "photographs",
        "a photograph that has changed is read",
        "if (digest := sha256(data)) != chosen.digest:",
        "if not (digest := sha256(data)):",
        "tests/test_selection.py::test_changed_file_is_refused",
    ),
    Fault(
        "photographs",
        "all random choices use one stream",
        "return np.random.PCG64([seed % 2**64, int(purpose)])",
        "return np.random.PCG64([seed % 2**64, 0])",
        "tests/test_selection.py::test_streams_stay_what_they_are",
    ),
    # ── study ─────────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "study",
        "two processes may lock one job",
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "tests/test_locks.py::test_lock_excludes_others_in_the_same_process",
    ),
    Fault(
        "study",
        "a lock on a file that is gone is granted",
        "if not _is_there(path, handle):",
        "if handle < 0:",
        "tests/test_locks.py::test_lock_on_a_file_that_its_owner_removed_meanwhile_is_shared_with_nobody",
    ),
    Fault(
        "study",
        "jobs are done with other weights than planned",
        "if model.weights_hash != self._inventory.models[name].weights:",
        "if not model.weights_hash:",
        "tests/test_study_jobs.py::test_model_whose_weights_changed_since_the_plan_is_refused",
    ),
    Fault(
        "study",
        "the key of a job forgets its precision",
        '"precision": self.precision,\n',
        "",
        "tests/test_study_jobs.py::test_key_changes_with_all_that_the_answer_depends_on",
    ),
    Fault(
        "study",
        "measures of one test take the place of another's",
        'f"{job.key}-{self._test}.json"',
        'f"{job.key}.json"',
        "tests/test_study_store.py::test_measures_of_another_test_are_another_file_of_the_same_votes",
    ),
    Fault(
        "study",
        "changed measures are read as they are",
        "if checksum not in (digest_of(content), sha256(json.dumps(content, indent=1).encode())):",
        "if checksum is None:",
        "tests/test_study_store.py::test_number_in_the_measures_that_was_changed_is_found",
    ),
    Fault(
        "study",
        "the share of certified pixels forgets those outside",
        '_measured("certified", tau, level, 100 - found.abstained)',
        '_measured("certified", tau, level, found.ones)',
        "tests/test_study_measures.py::test_every_row_is_what_the_metric_says_of_the_votes",
    ),
    Fault(
        "study",
        "Student's interval has a degree of freedom too many",
        "float(stdtrit(count - 1, (1 + confidence) / 2))",
        "float(stdtrit(count, (1 + confidence) / 2))",
        "tests/test_study_results.py::test_half_width_is_students",
    ),
    Fault(
        "study",
        "undefined values are averaged",
        "if not math.isnan(scene[0])]",
        "]",
        "tests/test_study_results.py::test_undefined_values_are_left_out_and_counted",
    ),
    Fault(
        "study",
        "a larger deletion area is ranked better",
        'Column("deletion_area", "image", "deletion area", -1)',
        'Column("deletion_area", "image", "deletion area", +1)',
        "tests/test_study_results.py::test_best_is_first_more_certified_and_less_confidence_left",
    ),
    Fault(
        "study",
        "a study goes on with other labels than it began with",
        "if others := sorted(other.name for other in",
        "if others := sorted(other.name for other in [] and",
        "tests/test_study_jobs.py::test_labels_that_changed_since_the_choice_are_refused_and_may_be_chosen_again",
    ),
    Fault(
        "study",
        "a grid explains its first photograph, whichever cell is asked",
        "return self.photographs[self.cell]",
        "return self.photographs[0]",
        "tests/test_study_jobs.py::test_class_explained_is_that_of_the_photograph_in_the_cell",
    ),
    Fault(
        "study",
        "a grid that is resized is on no record",
        "for_grid(model, self.settings.grids.side * facts.cell_size)",
        "for_grid(model, facts.grid_size)",
        "tests/test_surgery.py::test_jobs_of_a_study_tell_that_their_grid_is_resized",
    ),
    # ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "attacks",
        "an attacked image may leave the range of pixels",
        "return (low * wanted).clamp(-image, 1 - image).to(delta.dtype)",
        "return (low * wanted).clamp(-1, 1).to(delta.dtype)",
        "tests/test_attack_directions.py::test_projection_is_the_nearest_member_of_the_ball",
    ),
    Fault(
        "attacks",
        "flips are judged by the noise of the certificate",
        'stream(self._seed, "judgement", own), stream(self._seed, "attack", own)',
        'stream(self._seed, "pixels", own), stream(self._seed, "attack", own)',
        "tests/test_attacks.py::test_noise_is_never_that_of_the_certificate",
    ),
    Fault(
        "attacks",
        "the attack climbs where it should descend",
        "return -slope.mean(dim=0).nan_to_num(0, 0, 0)",
        "return slope.mean(dim=0).nan_to_num(0, 0, 0)",
        "tests/test_attack_directions.py::test_gradients_agree_with_the_closed_form",
    ),
    Fault(
        "attacks",
        "half of the votes count as a majority",
        "return 2 * self._kept(attempt) <= self.samples",
        "return 2 * self._kept(attempt) < self.samples",
        "tests/test_attacks.py::test_exactly_half_of_the_votes_are_no_majority",
    ),
    Fault(
        "attacks",
        "a proof of a flip forgets how many attempts were made",
        "hypotheses = max(1, int((labels != ABSTAIN).sum()) * self.attempts)",
        "hypotheses = max(1, int((labels != ABSTAIN).sum()))",
        "tests/test_attacks.py::test_abstentions_are_tested_apart_from_flips",
    ),
    Fault(
        "attacks",
        "the strongest pixels are attacked in place of the weakest",
        'weakest = sure[np.argsort(kept[sure], kind="stable")]',
        'weakest = sure[np.argsort(-kept[sure], kind="stable")]',
        "tests/test_attacks.py::test_pixels_are_the_weakest_certified_and_any_that_abstain",
    ),
    Fault(
        "attacks",
        "the surrogate of Layer-CAM takes negative slopes too",
        "return explainer.formula and partial(_maps_by_formula, explainer, explainer.formula, target)",
        "formula = explainer.formula\n"
        '        if explainer.name == "layer_cam":\n'
        "            formula = lambda features, slopes: (features * slopes).sum(dim=1)\n"
        "        return formula and partial(_maps_by_formula, explainer, formula, target)",
        "tests/test_attack_directions.py::test_before_a_linear_head_surrogates_rank_like_the_method",
    ),
    Fault(
        "attacks",
        "an image counts once for every certificate",
        "return len({outcome.certificate.votes.provenance.image for outcome in outcomes})",
        "return len([outcome.certificate.votes.provenance.image for outcome in outcomes])",
        "tests/test_attacks_summary.py::test_an_image_counts_once_however_many_certificates_it_has",
    ),
    Fault(
        "attacks",
        "an attack does not look whether the explainer is the votes' own",
        "now = replace(source, **describe(explainer), image=image_hash(clean))",
        "now = source",
        "tests/test_attacks.py::test_another_image_or_explainer_is_refused",
    ),
    Fault(
        "attacks",
        "an attack chooses the kernel of attention for all threads",
        "with one_at_a_time, torch.enable_grad():\n            images",
        "with torch.enable_grad():\n            images",
        "tests/test_threads.py::test_attacks_do_not_change_the_attention_of_other_threads",
    ),
    # ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "figures",
        "a pixel without a radius is painted as one of radius 0",
        "_draw(axes, np.where(radii > 0, radii, np.nan),",
        "_draw(axes, radii,",
        "tests/test_figures.py::test_radius_map_shows_each_radius_and_nothing_where_there_is_none",
    ),
    Fault(
        "figures",
        "the shares beside a map are mixed up",
        "{shares.ones:.1f} % in · {shares.zeros:.1f} % out",
        "{shares.zeros:.1f} % in · {shares.ones:.1f} % out",
        "tests/test_figures.py::test_shares_stand_beside_each_map",
    ),
    Fault(
        "figures",
        "an overlay shows the largest level in place of the smallest",
        "inside = overlay == level",
        "inside = overlay >= level",
        "tests/test_figures.py::test_overlay_shows_the_smallest_certified_level",
    ),
    Fault(
        "figures",
        "labels outside are painted as abstentions",
        "((1, one), (0, ZERO), (ABSTAIN, ABSTAINED))",
        "((1, one), (0, ABSTAINED), (ABSTAIN, ZERO))",
        "tests/test_figures.py::test_certified_maps_are_the_level_colour_white_and_grey",
    ),
    Fault(
        "figures",
        "the radius in a caption is the largest of all sizes",
        "largest = max((job.size for job in jobs), default=0)",
        "largest = min((job.size for job in jobs), default=0)",
        "tests/test_study_figures.py::test_radius_beside_lanes_is_the_smallest_of_all_models",
    ),
    Fault(
        "figures",
        "a caption names an n that is too small for the largest maps",
        "n ≥ {max(short.values())}",
        "n ≥ {min(short.values())}",
        "tests/test_study_figures.py::test_captions_name_the_tau_that_n_cannot_reach",
    ),
    Fault(
        "figures",
        "bars are drawn over each other",
        "left += share\n",
        "left = 0.0\n",
        "tests/test_study_figures.py::test_bars_are_the_mean_shares_one_zero_abstain",
    ),
    Fault(
        "figures",
        "a gallery shows the smoothed map of another level than it says",
        'return [(certificate.smoothed(top), f"{layer}: smoothed',
        'return [(certificate.smoothed(certificate.levels[-1]), f"{layer}: smoothed',
        "tests/test_figures.py::test_gallery_shows_smoothed_map_and_overlay_of_every_certificate",
    ),
    Fault(
        "figures",
        "bars against K are drawn of a study with one K",
        "if len(values) < 2:",
        'if len(values) < 2 and name != "levels":',
        "tests/test_study_figures.py::test_figures_that_a_study_cannot_give_are_refused_with_the_reason",
    ),
    Fault(
        "figures",
        "the picture of an attack paints estimated flips as proven ones",
        "picture[judge.provably_flipped(attempt) & labelled] = PROVEN",
        "picture[judge.flipped(attempt) & labelled] = PROVEN",
        "tests/test_attacks.py::test_estimated_flips_are_not_painted_as_proven_ones",
    ),
    # ── report ────────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "report",
        "a page of many small maps is never too large",
        "self.size += len(self.inside[name])",
        "self.size = len(self.inside[name])",
        "tests/test_report.py::test_large_pages_keep_their_votes_in_a_folder_beside_them",
    ),
    Fault(
        "report",
        "a page deletes files that are not its own",
        '[file for file in self.folder.glob("*.js") if NAME.fullmatch(file.stem)]',
        'list(self.folder.glob("*.js"))',
        "tests/test_report.py::test_another_page_of_the_same_name_takes_the_folder_over",
    ),
    Fault(
        "report",
        "counts of 256 samples do not fit in their bytes",
        "return np.min_scalar_type(n)",
        "return np.min_scalar_type(n - 1)",
        "tests/test_report.py::test_script_certifies_as_the_library_does",
    ),
    Fault(
        "report",
        "names in the index may close the script",
        r"""return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")""",
        "return text",
        "tests/test_report.py::test_hostile_names_are_only_text",
    ),
    Fault(
        "report",
        "requests for other hosts are answered",
        "if len(hosts) != 1 or hosts[0] not in self.server.hosts:",
        "if len(hosts) != 1:",
        "tests/test_serve.py::test_other_hosts_are_refused",
    ),
    Fault(
        "report",
        "the page is served to other machines",
        "super().__init__((ADDRESS, port), _Handler)",
        'super().__init__(("0.0.0.0", port), _Handler)',
        "tests/test_serve.py::test_it_listens_on_this_machine_alone",
    ),
    Fault(
        "report",
        "a notebook shows names as HTML",
        'title = escape(f"{source.image_title',
        'title = str(f"{source.image_title',
        "tests/test_report.py::test_notebooks_show_a_picture_the_shares_and_no_foreign_tags",
    ),
    Fault(
        "report",
        "the summary shows zeros where n does not reach",
        'column.metric in reached or mean == "not measured"',
        'column.metric in reached or mean != "undefined"',
        "tests/test_report.py::test_summary_says_where_n_does_not_reach",
    ),
    Fault(
        "report",
        "the page's script wants one vote more than the library",
        "labels[i] = tested.ones[i] >= needed ? 1 :",
        "labels[i] = tested.ones[i] > needed ? 1 :",
        "tests/test_report.py::test_script_certifies_as_the_library_does[holm-0-100]",
    ),
    Fault(
        "report",
        "the page's script steps down too far",
        "needed = enoughFor(pixels - certified);",
        "needed = enoughFor(pixels - certified - 1);",
        "tests/test_report.py::test_script_certifies_as_the_library_does",
    ),
    Fault(
        "report",
        "the page's script guesses inside at half of the guesses",
        "const guessedOne = (i) => 2 * guessOnes[i] > guess;",
        "const guessedOne = (i) => 2 * guessOnes[i] >= guess;",
        "tests/test_report.py::test_script_certifies_as_the_library_does[reference-10-100]",
    ),
    Fault(
        "report",
        "the page puts names in as HTML",
        "(tag, textContent, more = {}) => make(tag, { textContent, ...more });",
        "(tag, innerHTML, more = {}) => make(tag, { innerHTML, ...more });",
        "tests/test_page.py::test_hostile_names_are_shown_and_do_nothing",
    ),
    Fault(
        "report",
        "the page prints radii rounded up",
        "return exact.slice(0, exact.length - 100 + digits);",
        "return (Math.ceil(value * 10 ** digits) / 10 ** digits).toFixed(digits);",
        "tests/test_page.py::test_pixel_under_the_pointer_is_described",
    ),
    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────
    Fault(
        "commands",
        "votes of another run are replaced without being asked",
        'elif not overwrite:\n            remedy = "give the same settings',
        'elif overwrite:\n            remedy = "give the same settings',
        "tests/test_commands_certify.py::test_votes_of_other_settings_are_not_replaced_unless_told_to",
    ),
    Fault(
        "commands",
        "votes are reused without --resume",
        "self.begun = [votes if output.resume else None for votes in found]",
        "self.begun = found",
        "tests/test_commands_certify.py::test_without_resume_votes_are_sampled_again",
    ),
    Fault(
        "commands",
        "a refusal exits as if all went well",
        "sys.exit(REFUSED)",
        "sys.exit(DONE)",
        "tests/test_commands_certify.py::test_missing_image_is_refused",
    ),
    Fault(
        "commands",
        "partial votes stay beside complete ones",
        "self.partial.unlink(missing_ok=True)",
        "pass",
        "tests/test_commands_certify.py::test_starting_anew_removes_what_an_earlier_run_left",
    ),
    Fault(
        "commands",
        "names of images are read as markup",
        'table.add_row("" if row else escape(name),',
        'table.add_row("" if row else name,',
        "tests/test_commands_certify.py::test_names_of_images_are_no_markup",
    ),
    Fault(
        "commands",
        "Ctrl-C loses the votes that are counted",
        "place.save(part)",
        "str(part)",
        "tests/test_commands_certify.py::test_ctrl_c_saves_what_is_counted_and_says_how_to_go_on",
    ),
    Fault(
        "commands",
        "a plan allows less than it promises",
        "largest_tau = max(tau, statistics.largest_tau(n, alpha, pixels) or 0.5)",
        "largest_tau = statistics.largest_tau(n, alpha, pixels) or 0.5",
        "tests/test_commands_plan.py::test_plan_allows_no_less_than_it_promises",
    ),
    Fault(
        "commands",
        "a study file that is there is overwritten",
        "if file.exists():\n        raise ArgumentError(",
        "if file.is_dir():\n        raise ArgumentError(",
        "tests/test_commands_study.py::test_init_does_not_overwrite",
    ),
    Fault(
        "commands",
        "a broken certificate exits as if all went well",
        "return terminal.BROKEN if any(",
        "return terminal.DONE if any(",
        "tests/test_commands_attack.py::test_a_broken_certificate_has_an_exit_code_of_its_own",
    ),
    Fault(
        "commands",
        "proven flips are not told from estimated ones",
        'provably = f" ({toll.provably})" if toll.provably else ""',
        'provably = ""',
        "tests/test_attacks_summary.py::test_the_table_names_flips_and_abstentions_of_each_group",
    ),
    Fault(
        "commands",
        "figures are drawn into a file",
        'if out is not None and out.is_file():\n        raise ArgumentError(f"--out {out} is a file: name a folder.")',
        'if out is not None and out.is_dir():\n        raise ArgumentError(f"--out {out} is a file: name a folder.")',
        "tests/test_study_figures.py::test_file_in_the_place_of_the_folder_is_refused",
    ),
    Fault(
        "commands",
        "a study with failed jobs exits as if all went well",
        "return terminal.REFUSED if tally.failures else terminal.DONE",
        "return terminal.DONE",
        "tests/test_commands_study.py::test_method_that_cannot_explain_a_model_fails_and_all_others_are_finished",
    ),
)


# ── Copies of the code ────────────────────────────────────────────────────────────────────────────────────────────


class Copy:
    """A copy of the code that faults are put into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).is_file():
                shutil.copy(ROOT / name, folder / name)

    @contextmanager
    def changed(self, fault: Fault) -> Iterator[None]:
        """Have the fault in the copy inside the block."""
        file = file_of(fault, self.folder)
        sound = file.read_text(encoding="utf-8")
        file.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(sound, encoding="utf-8")

    def run(self, tests: Sequence[str], timeout: float = TIMEOUT) -> Run:
        """Run tests in the copy until one fails."""
        # Without bytecode: Python takes a file of the same length and second for the one that it compiled.
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
        started = time.monotonic()
        try:
            ended = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return Run(None, "", time.monotonic() - started)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", ended.stdout, re.MULTILINE)
        return Run(ended.returncode, failed[1] if failed else "", time.monotonic() - started)


def file_of(fault: Fault, folder: Path) -> Path:
    """The file of the package that holds the fault's text."""
    files = [file for file in sorted((folder / "src" / "pixelcert").rglob("*")) if file.suffix in SUFFIXES]
    counts = {file: file.read_text(encoding="utf-8").count(fault.old) for file in files}
    if (total := sum(counts.values())) != 1:
        raise ValueError(f"its text occurs {total} times")
    return max(counts, key=lambda file: counts[file])


def stale(fault: Fault, folder: Path = ROOT) -> str:
    """Say why a fault cannot be tried on the code in `folder`; empty if it can."""
    try:
        file_of(fault, folder)
    except ValueError as error:
        return str(error)
    for node in fault.tests.split():
        name, _, test = node.partition("::")
        file = folder / name
        if not file.is_file() or (test and f"def {test.split('[')[0]}(" not in file.read_text(encoding="utf-8")):
            return f"{node} is not there"
    return ""


class Copies:
    """Copies for several threads, each lent to one at a time."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for folder in folders:
            self._free.put(Copy(folder))

    @contextmanager
    def one(self) -> Iterator[Copy]:
        """Lend a copy for the block."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


# ── Trials ────────────────────────────────────────────────────────────────────────────────────────────────────────


def passing(copies: Copies, selections: Sequence[str], pool: ThreadPoolExecutor) -> set[str]:
    """Return the selections of tests that pass without a fault: by one run if all do, else by one for each."""

    def passes(tests: str) -> bool:
        with copies.one() as copy:
            return copy.run(tests.split()).code == ALL_PASSED

    with copies.one() as copy:
        if copy.run(" ".join(selections).split(), LONGER).code == ALL_PASSED:
            return set(selections)
    found = zip(selections, pool.map(passes, selections), strict=True)
    return {tests for tests, passed in found if passed}


def judge(fault: Fault, copies: Copies) -> Verdict:
    """Run the tests of a fault with the fault in place."""
    with copies.one() as copy:
        try:
            with copy.changed(fault):
                run = copy.run(fault.tests.split())
        except ValueError as error:
            return Verdict("BROKEN", str(error), 0.0)
    if run.code == SOME_FAILED:
        return Verdict("caught", run.failed, run.seconds)
    if run.code == ALL_PASSED:
        return Verdict("SURVIVED", fault.tests, run.seconds)
    return Verdict("BROKEN", "too slow" if run.code is None else f"pytest exits with {run.code}", run.seconds)


def try_out(faults: Sequence[Fault], copies: Copies, workers: int, skip_clean: bool) -> list[Verdict]:
    """Judge every fault, and print each verdict as it is reached."""
    with ThreadPoolExecutor(workers) as pool:
        selections = list(dict.fromkeys(fault.tests for fault in faults))
        sound = set(selections) if skip_clean else passing(copies, selections, pool)

        def verdict_on(fault: Fault) -> Verdict:
            verdict = Verdict("BROKEN", "its tests fail without it", 0.0)
            if fault.tests in sound:
                verdict = judge(fault, copies)
            print(line_of(fault, verdict), flush=True)
            return verdict

        return list(pool.map(verdict_on, faults))


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def line_of(fault: Fault, verdict: Verdict) -> str:
    return f"{verdict.word:8}  {fault.room:11}  {fault.about}  ({verdict.why}, {verdict.seconds:.0f} s)"


def summary(faults: Sequence[Fault], verdicts: Sequence[Verdict]) -> str:
    """How many faults of each room were caught."""
    total = Counter(fault.room for fault in faults)
    caught = Counter(fault.room for fault, verdict in zip(faults, verdicts, strict=True) if verdict.word == "caught")
    lines = [f"{room:11}  {caught[room]} of {count} caught" for room, count in total.items()]
    return "\n".join([*lines, f"{'all':11}  {caught.total()} of {total.total()} caught"])


def markdown(faults: Sequence[Fault], verdicts: Sequence[Verdict]) -> str:
    """A table of every fault and what became of it."""
    rows = [
        f"| {fault.room} | {fault.about} | {verdict.word} | `{verdict.why}` | {verdict.seconds:.0f} |"
        for fault, verdict in zip(faults, verdicts, strict=True)
    ]
    return "\n".join(["| room | fault | verdict | by | seconds |", "|---|---|---|---|--:|", *rows, ""])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Put faults into a copy of the code, and see that tests catch them.")
    parser.add_argument("--list", action="store_true", help="list the faults and run nothing")
    parser.add_argument("--check", action="store_true", help="say which faults no longer fit, and run nothing")
    parser.add_argument("--room", choices=list(dict.fromkeys(fault.room for fault in FAULTS)), help="try one room")
    parser.add_argument("--only", type=int, metavar="N", action="append", help="try this fault; may be repeated")
    parser.add_argument("--skip-clean", action="store_true", help="do not run the tests without a fault first")
    parser.add_argument("-j", type=int, default=1, metavar="N", dest="workers", help="how many to try at once")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdicts as a table, too")
    return parser.parse_args()


def main() -> int:
    asked = parse()
    chosen = {
        number: fault
        for number, fault in enumerate(FAULTS, 1)
        if asked.room in (None, fault.room) and (not asked.only or number in asked.only)
    }
    if asked.list:
        print("\n".join(f"{number:3}  {fault.room:11}  {fault.about}" for number, fault in chosen.items()))
        return 0
    if asked.check:
        reasons = {number: stale(fault) for number, fault in chosen.items()}
        lines = [
            f"{number:3}  {chosen[number].room:11}  {chosen[number].about}: {why}"
            for number, why in reasons.items()
            if why
        ]
        print("\n".join(lines) or f"all {len(chosen)} fit")
        return int(bool(lines))
    os.nice(10)
    faults = list(chosen.values())
    started = time.monotonic()
    with ExitStack() as folders:
        places = [Path(folders.enter_context(tempfile.TemporaryDirectory())) for _ in range(asked.workers)]
        verdicts = try_out(faults, Copies(places), asked.workers, asked.skip_clean)
    print(f"\n{summary(faults, verdicts)}\n{time.monotonic() - started:.0f} seconds")
    if asked.markdown:
        asked.markdown.write_text(markdown(faults, verdicts), encoding="utf-8")
    return int(any(verdict.word != "caught" for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
