"""Files are whole or absent, and a VotesFileError names a bad file and says what is wrong with it."""

import contextlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save as format_safetensors
from thoroughness import examples

import pixelcert as pc
from pixelcert.basics.files import read_arrays, read_sealed, write_arrays, write_atomically
from pixelcert.plan import check_levels_fit
from pixelcert.ranking import count_votes
from pixelcert.votes import KIND, VERSION, plan_as_dict

SOURCE = pc.Provenance("test", {}, "", "", "", "", "", 0, {}, "cpu", "float32", 1, False, {})
PHOTO = np.random.default_rng(2).integers(0, 256, (6, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def good(make_votes, tmp_path_factory) -> Path:
    """A votes file with every array."""
    votes = make_votes(guess=10, predictions=np.array([90, 10], np.int32), photo=PHOTO)
    return votes.save(tmp_path_factory.mktemp("good") / "good.safetensors")


def refusal(path: Path) -> str:
    """The message with which loading `path` is refused. Any other exception, or none, fails the test."""
    with pytest.raises(pc.VotesFileError) as caught:
        pc.Votes.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def same(one: pc.Votes, other: pc.Votes) -> bool:
    pairs = ((getattr(one, field.name), getattr(other, field.name)) for field in fields(pc.Votes))
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


# ── Writing in one step ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("crash", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_crash_while_writing_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step, crash):
    path = write_atomically(tmp_path / "votes.safetensors", b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise crash

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(type(crash)):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_crash_while_writing_for_the_first_time_leaves_nothing(make_votes, tmp_path, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        make_votes().save(tmp_path / "votes.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_data_is_on_the_disk_before_it_replaces_the_old_file(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "votes.safetensors", b"old")
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *given: (events.append("fsync"), fsync(*given)))
    monkeypatch.setattr(os, "replace", lambda *given: (events.append("replace"), replace(*given)))
    write_atomically(path, b"new")
    assert events[:2] == ["fsync", "replace"]
    assert path.read_bytes() == b"new"


def test_folders_are_made_and_the_path_is_returned(tmp_path):
    path = tmp_path / "a" / "b" / "votes.safetensors"
    assert write_atomically(str(path), b"new") == path
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        path = write_atomically(tmp_path / "votes.safetensors", b"new")
        during = os.umask(umask)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert during == umask, "writing changed the process's umask"


def test_arrays_and_header_come_back(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.uint16).reshape(2, 3)[:, ::-1], "b": np.zeros(0, np.int8)}
    path = write_arrays(tmp_path / "file", "things", 3, {"name": "ε"}, arrays)
    header, loaded = read_arrays(path, "things", 3)
    assert (header["kind"], header["version"], header["name"]) == ("things", 3, "ε")
    assert loaded.keys() == arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(loaded[name], arrays[name], strict=True)


# ── Damage ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", np.linspace(0, 0.999, 20))
def test_file_cut_short_is_refused(good, tmp_path, share):
    data = good.read_bytes()
    path = tmp_path / "cut.safetensors"
    path.write_bytes(data[: int(share * len(data))])
    refusal(path)


@pytest.mark.parametrize("missing", [1, 2, 8])
def test_file_that_lacks_its_last_bytes_is_refused(good, tmp_path, missing):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(good.read_bytes()[:-missing])
    refusal(path)


def test_file_with_bytes_to_spare_is_refused(good, tmp_path):
    path = tmp_path / "long.safetensors"
    path.write_bytes(good.read_bytes() + b"\0")
    refusal(path)


def flip(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


@pytest.mark.parametrize("part", ["header", "arrays"])
def test_one_changed_byte_never_loads_as_other_votes(good, tmp_path, part):
    data, votes = good.read_bytes(), pc.Votes.load(good)
    start = 8 + int.from_bytes(data[:8], "little")
    low, high = (0, start) if part == "header" else (start, len(data))
    random = np.random.default_rng(3)
    path = tmp_path / "flipped.safetensors"
    silent = []
    for position, mask in zip(random.integers(low, high, 200), random.integers(1, 256, 200), strict=True):
        path.write_bytes(flip(data, int(position), int(mask)))
        with contextlib.suppress(pc.VotesFileError):
            if not same(pc.Votes.load(path), votes):
                silent.append(data[max(low, position - 15) : position + 15])
    assert not silent, f"{len(silent)} of 200 changes were loaded without an error, near {silent[:3]}"


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (rb"\"sigma\": 0.15", rb"\"sigma\": 0.95"),
        (rb"\"seed\": \"0\"", rb"\"seed\": \"7\""),
        (rb"\"channels\": 3", rb"\"channels\": 1"),
        (rb"\"target\": 281", rb"\"target\": 285"),
    ],
)
def test_changed_header_is_noticed(good, tmp_path, was, becomes):
    """A radius is σ·Φ⁻¹(τ): one digit of the header and every promise is another."""
    data = good.read_bytes()
    assert data.count(was) == 1
    path = tmp_path / "changed.safetensors"
    path.write_bytes(data.replace(was, becomes))
    refusal(path)


# ── Other files ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\0" * 8, b"\xff" * 64, b"Votes for Tabby: 100\n" * 9, b"\x89PNG\r\n\x1a\n" + b"\0" * 99, b"{}"],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, content):
    path = tmp_path / "other.txt"
    path.write_bytes(content)
    refusal(path)


def raw_safetensors(header: str, data: bytes) -> bytes:
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        format_safetensors({"weight": np.zeros(3)}),
        format_safetensors({"weight": np.zeros(3)}, metadata={"format": "pt"}),
        format_safetensors({}),
        raw_safetensors('{"__metadata__":null,"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\1"),
        raw_safetensors('{"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}', b"\1\1"),  # NumPy has no bfloat16
    ],
    ids=["no metadata", "another's metadata", "empty", "null metadata", "bfloat16"],
)
def test_foreign_safetensors_file_is_called_foreign(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    message = refusal(path)
    assert "not one of pixelcert's" in message
    assert "damaged" not in message


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "[1]", "7", "null", "{}", '{"kind": 1}'])
def test_header_that_is_not_ours_is_refused(tmp_path, text):
    path = tmp_path / "votes.safetensors"
    path.write_bytes(format_safetensors({"ones": np.zeros(3, np.uint8)}, metadata={"pixelcert": text}))
    refusal(path)


def test_file_of_another_kind_says_which(tmp_path):
    path = write_arrays(tmp_path / "study.safetensors", "pixelcert study", 1, {}, {"a": np.zeros(1)})
    message = refusal(path)
    assert "pixelcert study" in message
    assert KIND in message


def test_newer_file_asks_for_an_upgrade(tmp_path):
    path = write_arrays(tmp_path / "votes.safetensors", KIND, 99, {}, {"a": np.zeros(1)})
    message = refusal(path)
    assert "99" in message
    assert "upgrade" in message


@pytest.mark.parametrize("version", ["1", None, 1.5])
def test_version_that_is_no_number_is_refused(tmp_path, version):
    refusal(write_arrays(tmp_path / "votes.safetensors", KIND, version, {}, {"a": np.zeros(1)}))


def test_missing_file_is_refused(tmp_path):
    assert "check the path" in refusal(tmp_path / "nowhere" / "votes.safetensors")


def test_folder_is_refused(tmp_path):
    refusal(tmp_path)


# ── A sound file with a header that makes no sense ────────────────────────────────────────────────────────────────


@pytest.fixture
def forge(make_votes, tmp_path) -> Callable[[Callable[[dict[str, Any]], Any]], Path]:
    """Writes a votes file, checksum and all, whose header `change` has changed."""

    def write(change: Callable[[dict[str, Any]], Any]) -> Path:
        votes = make_votes()
        header = {
            "plan": plan_as_dict(votes.plan), "provenance": votes.provenance.as_dict(), "channels": 3, "counted": 100
        }  # fmt: skip
        change(header)
        arrays = {"ones": votes.ones.astype(np.uint8), "zeros": votes.zeros.astype(np.uint8)}
        return write_arrays(tmp_path / "forged.safetensors", KIND, VERSION, header, arrays)

    return write


def test_forged_header_without_a_change_loads(forge):
    assert pc.Votes.load(forge(lambda header: None)).plan.levels == (50, 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sigma", -1),
        ("sigma", "0.15"),
        ("sigma", float("nan")),
        ("n", 0),
        ("n", 99.5),
        ("n", float("inf")),
        ("seed", str(2**70)),
        ("seed", str(2**63)),
        ("seed", 0),  # a number in version 2
        ("seed", 2**70),
        ("seed", float("inf")),
        *(("seed", text) for text in ("", "00", "+1", "-0", "1.0", "1e3", " 1", "1_0", "0x1", "١", "null")),
        ("seed", True),
        ("sigma", True),
        ("sigma", None),
        ("n", True),
        ("n", 100.0),
        ("n", "100"),
        ("levels", [True, 10]),
        ("levels", ["50", "10"]),
        ("levels", {"50": 1, "10": 2}),
        ("levels", [[50], [10]]),
        ("guess", 0.0),
        ("sign", ["signed"]),
        ("sign", None),
        ("levels", []),
        ("levels", [50, 50]),
        ("levels", [50, 100]),
        ("levels", "50"),
        ("levels", 50),
        ("levels", [50]),
        ("sign", "upside down"),
        ("rule", None),
        ("guess", -3),
        ("guess", "ten"),
        ("guess", 10),  # and no guesses in the file
        ("colour", "red"),
    ],
)
def test_plan_that_makes_no_sense_is_refused(forge, name, value):
    refusal(forge(lambda header: header["plan"].update({name: value})))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan", None),
        ("plan", []),
        ("provenance", "me"),
        ("provenance", {}),
        ("channels", "three"),
        ("channels", -3),
        ("channels", None),
        ("counted", 20),  # fewer than the votes in the file
        ("counted", 101),
        ("counted", "all"),
        ("counted", 100.0),
        ("counted", True),
        ("counted", None),
        ("counted", 10**400),
        ("channels", 3.0),
        ("channels", True),
        ("channels", 2**62),
        ("kind", None),
        ("version", True),
        ("version", 0),
        ("version", -1),
        ("version", 1.0),
    ],
)
def test_header_that_makes_no_sense_is_refused(forge, name, value):
    refusal(forge(lambda header: header.update({name: value})))


@pytest.mark.parametrize("name", ["plan", "provenance", "channels", "counted"])
def test_header_that_lacks_a_part_is_refused(forge, name):
    refusal(forge(lambda header: header.pop(name)))


def test_field_that_a_later_version_added_to_the_provenance_is_no_obstacle(forge):
    path = forge(lambda header: header["provenance"].update(weather="rain"))
    assert pc.Votes.load(path).provenance.method == "grad_cam"


@pytest.mark.parametrize("name", ["sigma", "n", "levels", "seed", "sign", "rule", "guess"])
def test_plan_that_lacks_a_field_gets_no_default(forge, name):
    """A file without its σ had the default one, and so another radius."""
    assert name in refusal(forge(lambda header: header["plan"].pop(name)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", 7),
        ("params", [1]),
        ("params", "none"),
        ("layer", None),
        ("weights", {}),
        ("image", 1.5),
        ("image_name", []),
        ("target", 281.0),
        ("target", True),
        ("target", "281"),
        ("target", -1),
        ("class_names", ["tabby"]),
        ("class_names", {"281": 3}),
        ("device", None),
        ("precision", 32),
        ("batch_size", 0),
        ("batch_size", 16.0),
        ("batch_size", "16"),
        ("compiled", "yes"),
        ("compiled", 1),
        ("versions", ["2.0"]),
        ("versions", {"torch": 2}),
        ("surgery", "none"),
        ("surgery", {"relu": 1}),
        ("batches", {"0": 16}),
        ("batches", [0, 16]),
        ("batches", [[0, 16, 3]]),
        ("batches", [[0, 0.5]]),
    ],
)
def test_provenance_of_other_types_is_refused(forge, name, value):
    message = refusal(forge(lambda header: header["provenance"].update({name: value})))
    assert name in message


# ── Counts that no sampling gives: the checksum is no signature ───────────────────────────────────────────────────────


@pytest.fixture
def forge_arrays(make_votes, tmp_path) -> Callable[..., Path]:
    """Writes a votes file, checksum and all, with arrays of one's own."""

    def write(n: int = 100, guess: int = 0, **arrays: Any) -> Path:
        votes = make_votes(n=n, guess=guess)
        path = votes.save(tmp_path / "whole.safetensors")
        header, found = read_arrays(path, KIND, VERSION)
        made = {name: array(found) if callable(array) else array for name, array in arrays.items()}
        return write_arrays(tmp_path / "forged.safetensors", KIND, VERSION, header, {**found, **made})

    return write


def first_pixel(name: str, value: int, kind: Any = np.int64) -> Callable[[dict[str, Any]], np.ndarray]:
    """Return the counts of a file with one of them changed."""

    def change(found: dict[str, Any]) -> np.ndarray:
        counts = found[name].astype(kind)
        counts[0, 0, 0] = value
        return counts

    return change


@pytest.mark.parametrize(
    "arrays",
    [
        {"ones": first_pixel("ones", 101)},
        {"ones": first_pixel("ones", -1)},
        {"zeros": first_pixel("zeros", -1, np.int8)},
        {"ones": first_pixel("ones", 2**32)},  # 0, when it wraps to 32 bits
        {"ones": first_pixel("ones", 2**32 + 5, np.uint64)},
        {"zeros": first_pixel("zeros", -(2**32) + 7)},
        {"ones": lambda found: found["ones"].astype(np.float32)},
        {"ones": lambda found: found["ones"] > 50},
        {"ones": lambda found: found["zeros"], "zeros": lambda found: found["ones"]},
        {"ones": lambda found: found["ones"][:1]},
        {"ones": lambda found: found["ones"][:, :0]},
        {"predictions": np.array([60, 41], np.uint8)},
        {"predictions": np.array([2**32 + 1, 0], np.uint64)},
        {"predictions": np.array([2**62, 2**62, 2**62, 2**62])},  # 0, when the sum wraps
        {"predictions": np.array([0.5, 3])},
        {"predictions": np.zeros((2, 2), np.uint8)},
        {"predictions": np.zeros(0, np.uint8)},
        {"photo": np.zeros((6, 8, 3), np.float32)},
        {"photo": np.full((6, 8, 3), 300, np.int32)},
        {"photo": np.zeros((6, 8, 4), np.uint8)},
        {"guess_ones": first_pixel("guess_ones", 11), "guess": 10},
        {"guess_ones": lambda found: 10 - found["guess_ones"], "guess": 10},
        {"guess_ones": lambda found: found["guess_ones"].astype(float), "guess": 10},
    ],
)
def test_counts_that_no_samples_give_are_refused(forge_arrays, arrays):
    assert "sample again" in refusal(forge_arrays(**arrays))


def test_ones_and_zeros_are_added_without_wrapping(make_votes, tmp_path):
    """In 32 bits, 2³¹ - 1 votes for each label make -2 together."""
    most = np.full((2, 6, 8), 2**31 - 1, np.int32)
    votes = make_votes()
    with pytest.raises(pc.ArgumentError, match="ones and zeros together"):
        pc.Votes(pc.Plan(n=2**31 - 1, levels=(50, 10), seed=0), votes.provenance, 3, 2**31 - 1, most, most)


def test_top_sets_that_are_not_nested_are_refused(forge_arrays):
    """A pixel in the top 10 % of a map is in its top 50 %."""
    swapped = {name: lambda found, name=name: found[name][::-1] for name in ("ones", "zeros")}
    assert "not nested" in refusal(forge_arrays(**swapped))
    assert "not nested" in refusal(
        forge_arrays(ones=lambda found: found["ones"][::-1] // 2, zeros=lambda found: 0 * found["zeros"])
    )
    assert "not nested" in refusal(
        forge_arrays(ones=lambda found: 0 * found["ones"], zeros=lambda found: found["zeros"][::-1] // 2)
    )


def test_top_sets_larger_than_k_percent_are_refused(forge_arrays):
    """Such a file certified every pixel as one of the most important 10 %."""
    everywhere = forge_arrays(ones=np.full((2, 6, 8), 100, np.uint8), zeros=np.zeros((2, 6, 8), np.uint8))
    assert "ones at K = 50" in refusal(everywhere)
    nowhere = forge_arrays(ones=np.zeros((2, 6, 8), np.uint8), zeros=np.full((2, 6, 8), 100, np.uint8))
    assert "zeros at K = 50" in refusal(nowhere)


@given(st.data())
@settings(max_examples=examples(60))
def test_votes_of_every_map_are_possible(data):
    """Ties, NaN, infinities, both rules and every sign: what rankings count is never refused."""
    pixels, samples = data.draw(st.integers(4, 9)), data.draw(st.integers(1, 5))
    values = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 3.0, np.nan, np.inf, -np.inf])
    maps = data.draw(arrays(np.float32, (samples, pixels), elements=values))
    levels = tuple(data.draw(st.lists(st.sampled_from([50, 25, 12.5, 60, 1, 70]), min_size=1, unique=True)))
    plan = pc.Plan(n=samples, levels=levels, seed=0, rule=data.draw(st.sampled_from(["rank", "percentile"])),
                   sign=data.draw(st.sampled_from(["signed", "absolute", "positive"])),
                   guess=data.draw(st.integers(0, samples)))  # fmt: skip
    try:
        check_levels_fit(levels, pixels, plan.rule)
    except pc.ArgumentError:
        return
    ones, zeros = count_votes(torch.from_numpy(maps), levels, plan.sign, plan.rule).view(2, -1, 1, pixels).numpy()
    first = torch.from_numpy(maps[: plan.guess])
    guesses = count_votes(first, levels, plan.sign, plan.rule)[0].view(-1, 1, pixels).numpy() if plan.guess else None
    pc.Votes(plan, SOURCE, 3, samples, ones, zeros, guesses).check_ranked()


# ── Files that are no files, too large, or nested ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("read", [refusal, lambda path: sealed_refusal(path)], ids=["votes", "sealed JSON"])
def test_pipes_and_devices_are_refused_without_waiting(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null"), tmp_path):
        assert "regular file" in read(path)


@pytest.mark.parametrize("read", [refusal, lambda path: sealed_refusal(path)], ids=["votes", "sealed JSON"])
def test_files_far_too_large_are_refused_unread(tmp_path, read):
    with (path := tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)  # sparse: it takes no room
    assert str(2**40) in read(path)


def test_path_that_no_system_has_is_refused():
    assert "check the path" in refusal(Path("votes\0.safetensors"))


@pytest.mark.parametrize("size", [2**63, 2**62, 10**9, 200_000_000])
def test_header_longer_than_the_file_is_refused(tmp_path, size):
    path = tmp_path / "votes.safetensors"
    path.write_bytes(struct.pack("<Q", size) + b'{"ones":1}')
    assert str(size) in refusal(path)


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "header",
    [
        NESTED,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        json.dumps({"__metadata__": {"pixelcert": NESTED}}),
        json.dumps(
            {"__metadata__": {"pixelcert": '{"kind": "pixelcert votes", "plan": ' + "[" * 100 + "]" * 100 + "}"}}
        ),
        '{"__metadata__": {"pixelcert": "{\\"kind\\": 1, \\"kind\\": 2}"}}',
        '{"__metadata__": {"pixelcert": "{}"}, "__metadata__": {"pixelcert": "{}"}}',
        '{"__metadata__": {"pixelcert": 7}}',
        '{"__metadata__": [1]}',
        '{"ones": {"dtype": "I32", "shape": [1000000000, 1000000000], "data_offsets": [0, 4]}, '
        '"__metadata__": {"pixelcert": "{\\"kind\\": 1}"}}',
        '{"__metadata__": {"pixelcert": "{\\"counted\\": ' + "9" * 5000 + '}"}}',
    ],
    ids=range(10),
)
def test_header_that_would_trip_a_parser_is_refused(tmp_path, header):
    path = tmp_path / "votes.safetensors"
    path.write_bytes(raw_safetensors(header, b"\0\0\0\0"))
    assert "damaged" in refusal(path)


def sealed_refusal(path: Path) -> str:
    with pytest.raises(pc.ArgumentError) as caught:
        read_sealed(path, "things", 1, "make it again")
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        NESTED,
        '{"a": NaN}',
        '{"a": [Infinity]}',
        '{"a": -1e999}',
        '{"a": 1, "a": 2}',
        '{"a": ' + "[" * 99 + "]" * 99 + "}",
    ],
    ids=["deep", "NaN", "infinite", "beyond floats", "twice", "nested"],
)
def test_sealed_json_that_readers_differ_on_is_refused(tmp_path, text):
    (path := tmp_path / "sealed.json").write_text(text)
    message = sealed_refusal(path)
    assert "no JSON file" in message, "its checksum is not asked: anyone can make one"
    assert "make it again" in message


def test_not_a_number_in_a_header_is_a_word(forge):
    """Files may hold it among the parameters; nowhere else is it accepted."""
    path = forge(lambda header: header["provenance"]["params"].update(eps=float("nan"), most=float("-inf")))
    assert pc.Votes.load(path).provenance.params == {"relu": True, "eps": "nan", "most": "-inf"}
    again = pc.Votes.load(path).save(path.with_name("again.safetensors"))
    assert b"NaN" not in again.read_bytes()


# ── What a later pixelcert wrote ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("part", "name"),
    [("plan", "looks"), ("plan", "threat"), ("plan", "weather"), ("provenance", "denoiser"), ("provenance", "threat"),
     (None, "looks")],
)  # fmt: skip
def test_what_changes_the_meaning_of_labels_is_never_ignored(forge, part, name):
    """Votes of a network behind a denoiser, or counted along a schedule, prove other things."""

    def change(value: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda header: (header[part] if part else header).update({name: value})

    message = refusal(forge(change([10, 100])))
    assert "newer pixelcert" in message
    assert name in message
    assert "upgrade" in message
    assert pc.Votes.load(forge(change(None))).plan.levels == (50, 10)


def test_what_only_adds_survives_and_certifies_nothing_else(forge_arrays, tmp_path):
    added = {
        "clean_top": np.ones((2, 6, 8), bool),
        "scores": np.array([0.5, 1e-300]),
        "looks.ones": np.zeros((3, 2, 6, 8), np.uint8),
    }
    votes, plain = pc.Votes.load(forge_arrays(**added)), pc.Votes.load(forge_arrays())
    votes = replace(votes, provenance=replace(votes.provenance, more={"weather": ["rain", 3]}))
    again = pc.Votes.load(votes.save(tmp_path / "again.safetensors"))
    assert again.more.keys() == added.keys()
    for name, array in added.items():
        np.testing.assert_array_equal(again.more[name], array, strict=True)
    assert again.provenance.more == {"weather": ["rain", 3]}
    assert again.provenance.as_dict()["weather"] == ["rain", 3]
    assert again.save(tmp_path / "third.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    for level in (50, 10):
        np.testing.assert_array_equal(again.certify().labels[level], plain.certify().labels[level])


def test_files_of_version_1_load_with_seeds_that_are_numbers(make_votes, tmp_path):
    votes = replace(make_votes(), plan=pc.Plan(levels=(50, 10), seed=2**63 - 1))
    header, arrays = read_arrays(votes.save(tmp_path / "votes.safetensors"), KIND, VERSION)
    assert header["plan"]["seed"] == "9223372036854775807"
    header["plan"]["seed"], header["version"] = 2**63 - 1, 1
    path = write_arrays(tmp_path / "old.safetensors", KIND, 1, header, arrays)
    assert pc.Votes.load(path).plan == votes.plan
    header["plan"]["seed"] = "5"
    refusal(write_arrays(tmp_path / "old.safetensors", KIND, 1, header, arrays))


# ── Fuzzing ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=examples(150))
def test_a_forged_header_is_refused_or_makes_sense(make_votes, tmp_path_factory, data):
    """Whatever one value of a header becomes, loading gives votes that can be certified and saved, or one error."""
    folder = tmp_path_factory.mktemp("fuzz")
    header, arrays = read_arrays(make_votes().save(folder / "votes.safetensors"), KIND, VERSION)
    part = data.draw(st.sampled_from([header, header["plan"], header["provenance"]]))
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(ODD)
    path = write_arrays(folder / "forged.safetensors", KIND, VERSION, {**header}, arrays)
    with contextlib.suppress(pc.VotesFileError):
        votes = pc.Votes.load(path)
        assert same(pc.Votes.load(votes.save(folder / "again.safetensors")), votes)
        json.dumps([plan_as_dict(votes.plan), votes.provenance.as_dict()], allow_nan=False)


@given(st.data())
@settings(max_examples=examples(100))
def test_forged_arrays_are_refused_or_make_sense(make_votes, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    header, found = read_arrays(make_votes(guess=10).save(folder / "votes.safetensors"), KIND, VERSION)
    kind = data.draw(st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.bool_]))
    shape = data.draw(st.sampled_from([(2, 6, 8), (1, 6, 8), (2, 48), (3,), ()]))
    forged = np.asarray(data.draw(arrays(kind, shape)))
    name = data.draw(st.sampled_from(["ones", "zeros", "guess_ones", "predictions", "photo"]))
    path = write_arrays(folder / "forged.safetensors", KIND, VERSION, header, {**found, name: forged})
    with contextlib.suppress(pc.VotesFileError):
        votes = pc.Votes.load(path)
        assert votes.ones.max() <= 100
        assert (votes.ones.astype(int) + votes.zeros).max() <= 100
