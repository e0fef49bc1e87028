"""`pixelcert figure`: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..basics.messages import ArgumentError, PixelcertError
from ..figures.registry import FIGURES, FORMATS, entry, save
from . import terminal

if TYPE_CHECKING:
    from ..study.findings import Findings


HELP = "Draw the paper's figures from a study's results. Names:\n\n" + "\n\n".join(
    f"{name}: {figure.about}" for name, figure in FIGURES.items()
)


def figure(
    name: Annotated[str | None, typer.Argument(help="One of the names above, or all; none: list them.")] = None,
    file: Annotated[Path | None, typer.Argument(metavar="STUDY", help="The study file, in TOML.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Default: figures/ in the study's folder.")] = None,
    folder: Annotated[Path | None, typer.Option(help="The study's own folder, if not beside its file.")] = None,
    kinds: Annotated[list[str] | None, typer.Option("--format", help="pdf or png; default: both.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: all, or the first for maps.")] = None,
    layer: Annotated[str | None, typer.Option(help="Default: all, or each method's own for maps.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="May be repeated; default: all, or the paper's.")] = None,
    image: Annotated[str | None, typer.Option(help="A photograph's file name; default: the first.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Default: the study's first.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--samples", help="Default: the study's first.")] = None,
    preset: Annotated[str | None, typer.Option(help="Default: the study's first.")] = None,
    tau: Annotated[float | None, typer.Option(help="Default: that of the deletion test.")] = None,
    level: Annotated[float | None, typer.Option("-K", "--level", help="Default: the study's middle level.")] = None,
) -> None:
    if name is None:
        for known, listed in FIGURES.items():
            terminal.out.print(f"{known:16} {listed.about}", soft_wrap=True)
        return
    if name != "all":
        entry(name)
    if file is None:
        raise ArgumentError(f"figure {name} needs a study: pixelcert figure {name} study.toml")
    if strange := [kind for kind in kinds or () if kind not in FORMATS]:
        raise ArgumentError(f"--format {strange[0]} is not known: use pdf or png.")
    if out is not None and out.is_file():
        raise ArgumentError(f"--out {out} is a file: name a folder.")
    with terminal.status("Reading the study"):
        from ..study.findings import Findings
        from ..study.study import Study

        study = Study.open(file, folder)
        findings = Findings(study)
        point = {"sigma": sigma, "n": n, "preset": preset, "tau": tau, "level": level}
        asked: dict[str, Any] = {
            "model": model,
            "layer": layer,
            "methods": tuple(method or ()),
            "image": image,
            **point,
        }
        findings.at(**asked)
    into = study.folder / "figures" if out is None else out
    for one in FIGURES if name == "all" else [name]:
        try:
            _draw(findings, one, asked, into, kinds or FORMATS)
        except PixelcertError as error:
            if name != "all":
                raise
            terminal.say(f"{one}: skipped: {error}")


def _draw(findings: Findings, name: str, asked: dict[str, Any], into: Path, kinds: Any) -> None:
    with terminal.status(f"Drawing {name}"):
        drawn = entry(name).draw(findings, findings.at(**asked))
        files = [save(drawn, into / f"{name}.{kind}") for kind in dict.fromkeys(kinds)]
    terminal.say(", ".join(map(str, files)))
