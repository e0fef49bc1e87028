"""The terminal: exit codes, encodings, notes, tables, and how little `--help` imports."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from command_line import TINY, Run, assert_refused, interrupted, run_here

import pixelcert as pc
from pixelcert.commands import terminal

# ── Terminals of few letters ──────────────────────────────────────────────────────────────────────────────────────────


def few_letters(*arguments: Any) -> str:
    """Run the command on a terminal that has ASCII only, and return what it prints there."""
    run = run_here(*arguments, encoding="ascii")
    assert run.code == 0, run.err
    return run.out


def test_signs_are_written_in_words_where_a_terminal_lacks_them(make_votes, tmp_path):
    assert "n = 100 samples, sigma = 0.15, tau = 0.75, alpha = 0.001, 224 x 224 pixels" in few_letters(
        *("plan", "-n", 100, "--tau", 0.75)
    )
    saved = make_votes(size=(12, 16)).save(tmp_path / "saved.safetensors")
    assert "in l2 of the image's 12 x 16 x 3 values in [0, 1]" in few_letters("show", saved, "--no-picture")
    assert "729 at 224 x 224" in few_letters("methods")
    assert "resnet18" in few_letters("models")
    assert "the radius is sigma*Phi^-1(tau)" in " ".join(few_letters("certify", "--help").split())


def test_other_letters_become_escapes_where_a_terminal_lacks_them(cat, monkeypatch):
    monkeypatch.chdir(cat.parent)
    cat.rename("größe 猫.png")
    assert r"out/gr\xf6\xdfe \u732b-grad-input.safetensors" in few_letters("certify", "größe 猫.png", *TINY)
    (result,) = json.loads(few_letters("certify", "größe 猫.png", *TINY, "--resume", "--json"))
    assert (result["votes"], result["space"]) == ("out/größe 猫-grad-input.safetensors", "16 × 16 × 3 values in [0, 1]")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="file names are Unicode there")
def test_names_that_are_no_text_are_printed(certify, cat):
    name = os.fsdecode(b"cat\xff.png")
    cat.rename(cat.with_name(name))
    run = certify(images=(name,))
    assert run.code == 0
    assert r"out/cat\udcff-grad-input.safetensors" in run.out


# ── Messages and exit codes ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [("certify", "--colour", "red"), ("certify", "-n", "many"), ("paint",), ("show",), ("plan", "--tau", "high")],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_two(pixelcert, arguments):
    run = pixelcert(*arguments)
    assert run.code == 2
    assert run.out == ""
    assert "Usage" in run.err


def test_the_installed_script_is_the_door_of_the_commands():
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\npixelcert = "pixelcert.commands:main"' in project


@pytest.mark.parametrize("error", [pc.ArgumentError("[red]n=0[/red] is wrong: use 1."), OSError("the disk is gone")])
def test_a_refusal_is_one_message_and_exit_code_one(pixelcert, monkeypatch, error):
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr("pixelcert.commands.plan.parse_size", refuse)
    assert_refused(pixelcert("plan"), f"error: {error}")


def test_ctrl_c_has_the_exit_code_of_the_shell(pixelcert, monkeypatch):
    monkeypatch.setattr("pixelcert.commands.plan.parse_size", interrupted)
    assert pixelcert("plan") == Run(130, "", "interrupted.\n")


def test_warnings_are_notes(pixelcert, monkeypatch):
    monkeypatch.setattr(
        "pixelcert.commands.plan.parse_size",
        lambda text: (warnings.warn("[odd] size", pc.PixelcertWarning, stacklevel=1), (8, 6))[1],
    )
    run = pixelcert("plan")
    assert (run.code, run.err) == (0, "note: [odd] size\n")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("weights=cat.pth is no file: give weights=none.", "--weights cat.pth is no file: give --weights none."),
        ("method 'magic' is not known", "--method 'magic' is not known"),
        ('target "it\'s" is no class', '--target "it\'s" is no class'),
        ("target=3 is out of range", "--target 3 is out of range"),
        ("weights was 'ab', now 'cd'; the method grad", "weights was 'ab', now 'cd'; the method grad"),
    ],
)
def test_errors_while_loading_name_options_as_they_are_typed(said, shown):
    with pytest.raises(pc.ModelError) as caught, terminal.loading("Loading"):
        raise pc.ModelError(said)
    assert str(caught.value) == shown


# ── What is imported ──────────────────────────────────────────────────────────────────────────────────────────────────

# Prints, for each command line, which heavy packages are imported when it is done.
LIST_IMPORTED = """if True:
    import contextlib, io, json, sys
    from pixelcert.commands import main
    imported = {}
    for line in json.loads(sys.argv[1]):
        sys.argv = ["pixelcert", *line.split()]
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
            main()
        heavy = ("torch", "scipy", "matplotlib", "pyarrow", "ray")
        imported[line] = [printed.getvalue(), [name for name in heavy if name in sys.modules]]
    print(json.dumps(imported))
"""
COMMANDS = ("certify", "show", "attack", "plan", "models", "methods", "report", "serve", "figure", "study")
HELPS = ["--help", *(f"{name} --help" for name in COMMANDS)]
HELPS += [f"study {name} --help" for name in ("init", "plan", "run", "results")]


def test_help_imports_nothing_heavy_and_light_commands_no_torch(make_votes, tmp_path):
    """One process runs all of them, the lightest first, for what is imported stays."""
    saved = make_votes().save(tmp_path / "saved.safetensors")
    show = f"show {saved} --tau 0.6 -K 10 --correction joint"
    command = [sys.executable, "-c", LIST_IMPORTED, json.dumps([*HELPS, "plan", show])]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    runs = json.loads(run.stdout)
    assert {line: imported for line, (_, imported) in runs.items() if line in HELPS} == {line: [] for line in HELPS}
    assert all(name in runs["--help"][0] for name in COMMANDS)
    for line, words in {
        "study --help": ("init", "plan", "run", "results"),
        "study run --help": ("--ray", "--retries"),
        "attack --help": ("Try to flip pixels, certified or not.", "Exit code 3"),
        "figure --help": ("Names:", "teaser", "tradeoff"),
    }.items():
        assert all(word in runs[line][0] for word in words)
    assert "votes needed" in runs["plan"][0]
    assert runs["plan"][1] == ["scipy"]
    assert "Certified pixels" in runs[show][0]
    assert runs[show][1] == ["scipy", "matplotlib"]
