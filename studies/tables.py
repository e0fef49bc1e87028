"""Tables of the studies' findings, as Markdown.

    python -m studies.tables FOLDER

FOLDER is the folder where the studies were run, such as studies. A table whose study was not run says so.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pixelcert as pc
from pixelcert.basics.messages import ArgumentError

from .evidence import OTHER_NETWORKS, Evidence, attacks, find

LAYERS = ("input", "final")
PRESETS = {"reference": "published", "default": "ours"}
LEVELS, SIGMAS, TAUS = (50, 30, 25, 10, 5), (0.15, 0.25, 0.33), (0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
CERTIFIED, ABSTAINING = ("certified in", "certified out"), "abstaining"
STUDIES = {  # study: its network
    "reproduction": "resnet18",
    "reproduction-radii": "resnet18",
    "reproduction-masks": "resnet18",
    "reproduction-signs": "resnet18",
    **OTHER_NETWORKS,
}


@dataclass(frozen=True)
class Folder:
    """Folder with the results of studies."""

    path: Path

    def means(self, study: str, preset: str, model: str = "resnet18") -> Evidence:
        return Evidence.read(find(self.path, study), model, preset)

    def attacks(self) -> Any:
        return attacks(self.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = Folder(parser.parse_args().folder)
    for heading, table in TABLES.items():
        try:
            print(f"{heading}\n\n{table(folder)}\n")
        except ArgumentError as error:
            print(f"{heading}\n\nnot run: {error}\n")


def robustness(folder: Folder) -> str:
    columns = [f"{layer}: {name}" for layer in LAYERS for name in PRESETS.values()]
    evidence = [(folder.means("reproduction", preset), layer) for layer in LAYERS for preset in PRESETS]
    return _by_method(columns, lambda method: [_shares(of, method, layer) for of, layer in evidence])


def localisation(folder: Folder) -> str:
    found = [folder.means("reproduction", preset) for preset in PRESETS]
    columns = [
        f"{layer}: {what}" for layer in LAYERS for what in ("GridPG", *(f"{n}, K = 50 / 10" for n in PRESETS.values()))
    ]

    def cells(method: str) -> Iterator[str]:
        for layer in LAYERS:
            yield _number(found[0].grid_pg(method, layer), 2)
            yield from (_numbers((of.localisation(method, layer, level=k) for k in (50, 10)), 2) for of in found)

    return _by_method(columns, cells)


def faithfulness(folder: Folder) -> str:
    found = [folder.means("reproduction", preset) for preset in PRESETS]
    columns = [f"{layer}: {name}" for layer in LAYERS for name in PRESETS.values()]

    def cells(method: str) -> Iterator[str]:
        for layer in LAYERS:
            for of in found:
                left = (of.confidence(method, layer, level) for level in (5, 50))
                yield f"{_number(of.deletion_area(method, layer), 3)} ({_numbers(left, 2)})"

    return _by_method(columns, cells)


def effect_of_level(folder: Folder) -> str:
    of = folder.means("reproduction", "reference")
    columns = [f"{layer}, K = {level}" for layer in LAYERS for level in LEVELS]
    at = [(layer, level) for layer in LAYERS for level in LEVELS]
    return _by_method(
        columns, lambda m: (_numbers((of.ones(m, la, level=k), of.zeros(m, la, level=k)), 1) for la, k in at)
    )


def effect_of_radius(folder: Folder) -> str:
    of = folder.means("reproduction-radii", "reference")
    columns = [f"{layer}, σ = {sigma}" for layer in LAYERS for sigma in SIGMAS]
    at = [(layer, sigma) for layer in LAYERS for sigma in SIGMAS]

    return _by_method(columns, lambda method: (_balance(of, method, layer, sigma=sigma) for layer, sigma in at))


def effect_of_tau(folder: Folder) -> str:
    of = folder.means("reproduction", "reference")
    columns = [f"{layer}, τ = {tau}" for layer in LAYERS for tau in TAUS]
    at = [(layer, tau) for layer in LAYERS for tau in TAUS]
    return _by_method(columns, lambda method: (_number(of.certified(method, layer, tau=tau), 1) for layer, tau in at))


def test_and_sign(folder: Folder) -> str:
    """Compare on the same images the published test on magnitudes, and our test on magnitudes and on signed values."""
    published, own = (folder.means("reproduction-radii", preset) for preset in PRESETS)
    magnitudes = folder.means("reproduction-signs", "default")
    columns = [f"{layer}: {what}" for layer in LAYERS for what in ("published", "our test", "our test, signed")]
    at = [(layer, of) for layer in LAYERS for of in (published, magnitudes, own)]
    return _by_method(columns, lambda method: (_number(of.certified(method, layer), 1) for layer, of in at))


def masks(folder: Folder) -> str:
    found = [folder.means("reproduction-masks", preset) for preset in PRESETS]
    lines = (
        (f"{count} masks", level, *(f"{of.certified(f'rise-{count}', 'input', level=level):.1f} %" for of in found))
        for count in (1000, 6000)
        for level in LEVELS
    )
    return _markdown(("RISE, input", "K", *PRESETS.values()), lines)


def networks(folder: Folder) -> str:
    studies = {"reproduction": "resnet18", **OTHER_NETWORKS}
    found = {model: folder.means(study, "reference", model) for study, model in studies.items()}
    columns = [f"{layer}: {model}" for layer in LAYERS for model in found]
    at = [(of, layer) for layer in LAYERS for of in found.values()]
    return _by_method(columns, lambda method: (_balance(of, method, layer) for of, layer in at))


def intervals(folder: Folder) -> str:
    """Show Certified GridPG and the interval that contains the ratio of majority labels within R."""
    of = folder.means("reproduction", "default")

    def cell(method: str, layer: str) -> str:
        mean = of.mean("certified_grid_pg", method, layer, scene="grid")
        if mean.value is None or mean.low is None or mean.high is None:
            return "undefined"
        return f"{mean.value:.2f} in [{mean.low:.2f}, {mean.high:.2f}]"

    return _by_method(LAYERS, lambda method: (cell(method, layer) for layer in LAYERS))


def attacked(folder: Folder) -> str:
    """Show each attack by the pixels that it aimed at."""
    lines: list[Sequence[str]] = []
    for of in folder.attacks()["summary"]:
        pixels = of["pixels"]
        name = f"{pc.METHODS[of['method']].short}, {of['layer']}"
        lines.append((name, "", f"of {sum(map(pixels.get, CERTIFIED))}", "", f"of {pixels[ABSTAINING]}", ""))
        by_radius = sorted((row["multiple"], row["change"], row["groups"]) for row in of["rows"])
        for multiple, rows in groupby(by_radius, key=itemgetter(0)):
            by_aim = {change: groups for _, change, groups in rows}
            unchanged = by_aim.get("none")
            at_certified, at_abstaining = (by_aim.get(aim, unchanged) for aim in ("certified", ABSTAINING))
            random = _flipped(by_aim["random"], ABSTAINING) if "random" in by_aim else ""
            lost = str(_sum(at_certified, CERTIFIED, "abstains"))
            flipped = _flipped(at_certified, *CERTIFIED), lost, _flipped(at_abstaining, ABSTAINING)
            lines.append(("", f"{multiple:g} R", *flipped, random))
    header = ("method", "‖δ‖₂ <", "certified: flipped", "certified: abstain", "uncertified: flipped", "by a random δ")
    return _markdown(header, lines)


def missing(folder: Folder) -> str:
    lines = [
        (study, rules, f"{method}, {layer}, σ = {sigma}", f"{count} of {planned} {scene}s")
        for study, model in STUDIES.items()
        for preset, rules in PRESETS.items()
        for (method, layer, sigma, scene), (count, planned) in _missing(folder, study, preset, model).items()
    ]
    return _markdown(("study", "rules", "setting", "measured"), lines) if lines else "none"


TABLES = {
    "Percent of pixels certified 1 / certified 0 / either, K = 50": robustness,
    "GridPG without noise, and Certified GridPG": localisation,
    "Area under the deletion curve (confidence left at K = 5 / 50)": faithfulness,
    "Percent certified 1 / certified 0 against K, published rules": effect_of_level,
    "Percent certified / Certified GridPG against σ, K = 50, published rules": effect_of_radius,
    "Percent certified against τ, K = 50, published rules": effect_of_tau,
    "Percent certified by test and sign, K = 50": test_and_sign,
    "Percent certified by RISE against its masks": masks,
    "Percent certified / Certified GridPG by network, K = 50, published rules": networks,
    "Certified GridPG in its certified interval, K = 50, our rules": intervals,
    "Flipped pixels under attack (provably), K = 25": attacked,
    "Scenes that were planned and not measured": missing,
}


# ── Markdown ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_method(columns: Sequence[str], cells: Callable[[str], Iterable[str]]) -> str:
    return _markdown(("method", *columns), ((method.short, *cells(name)) for name, method in pc.METHODS.items()))


def _markdown(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def _shares(of: Evidence, method: str, layer: str) -> str:
    return _numbers((of.ones(method, layer), of.zeros(method, layer), of.certified(method, layer)), 1) + " %"


def _balance(of: Evidence, method: str, layer: str, **at: float) -> str:
    """Show percent certified and Certified GridPG, or – if not measured."""
    known = []
    for measure, digits, unit in ((of.certified, 1, " %"), (of.localisation, 2, "")):
        try:
            known.append(f"{_number(measure(method, layer, **at), digits)}{unit}")
        except ArgumentError:
            known.append("–")
    return " / ".join(known)


def _missing(folder: Folder, *study: str) -> dict[tuple[str, str, float, str], tuple[int, int]]:
    try:
        return folder.means(*study).missing
    except ArgumentError:  # the study was not run: every scene is missing, and its tables say so
        return {}


def _flipped(groups: Any, *names: str) -> str:
    flipped, provably, pixels = (_sum(groups, names, what) for what in ("flipped", "provably", "pixels"))
    return f"{flipped} ({provably}), {100 * flipped / pixels:.1f} %" if flipped else "0"


def _sum(groups: Any, names: Iterable[str], what: str) -> int:
    return sum(groups[name][what] for name in names)


def _numbers(values: Iterable[float], digits: int) -> str:
    return " / ".join(_number(value, digits) for value in values)


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
