"""Files are whole or absent, and a VotesFileError names a bad file and says what is wrong with it."""

import contextlib
import os
import struct
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as format_safetensors

import pixelcert as pc
from pixelcert.basics.files import read_arrays, write_arrays, write_atomically
from pixelcert.votes import KIND, VERSION

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
        (rb"\"seed\": 0", rb"\"seed\": 7"),
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
        header = {"plan": asdict(votes.plan), "provenance": asdict(votes.provenance), "channels": 3, "counted": 100}
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
        ("seed", 2**70),
        ("seed", float("inf")),
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
