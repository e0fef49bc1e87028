"""What the studies in this folder found, as Markdown tables.

    python -m studies.tables FOLDER

FOLDER is where they were run, such as studies. What is not there is left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pixelcert as pc
from pixelcert.errors import ArgumentError

from .evidence import OTHER_NETWORKS, Evidence, find

LAYERS = ("input", "final")
PRESETS = {"reference": "published", "default": "ours"}
LEVELS, SIGMAS, TAUS = (50, 30, 25, 10, 5), (0.15, 0.25, 0.33), (0.6, 0.65, 0.7, 0.75, 0.8, 0.85)

Read = Callable[..., Evidence]  # (study, preset, model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder

    def read(study: str, preset: str, model: str = "resnet18") -> Evidence:
        return Evidence.read(find(folder, study), model, preset)

    for heading, table in TABLES.items():
        try:
            print(f"{heading}\n\n{table(read)}\n")
        except ArgumentError as error:
            print(f"{heading}\n\nnot run: {error}\n")


def robustness(read: Read) -> str:
    columns = [f"{layer}: {name}" for layer in LAYERS for name in PRESETS.values()]
    evidence = [(read("reproduction", preset), layer) for layer in LAYERS for preset in PRESETS]
    return _by_method(columns, lambda method: [_shares(of, method, layer) for of, layer in evidence])


def localisation(read: Read) -> str:
    found = [read("reproduction", preset) for preset in PRESETS]
    columns = [
        f"{layer}: {what}" for layer in LAYERS for what in ("GridPG", *(f"{n}, K = 50 / 10" for n in PRESETS.values()))
    ]

    def cells(method: str) -> Iterator[str]:
        for layer in LAYERS:
            yield _number(found[0].grid_pg(method, layer), 2)
            yield from (_numbers((of.localisation(method, layer, level=k) for k in (50, 10)), 2) for of in found)

    return _by_method(columns, cells)


def faithfulness(read: Read) -> str:
    found = [read("reproduction", preset) for preset in PRESETS]
    columns = [f"{layer}: {name}" for layer in LAYERS for name in PRESETS.values()]

    def cells(method: str) -> Iterator[str]:
        for layer in LAYERS:
            for of in found:
                left = (of.confidence(method, layer, level) for level in (5, 50))
                yield f"{_number(of.deletion_area(method, layer), 3)} ({_numbers(left, 2)})"

    return _by_method(columns, cells)


def effect_of_level(read: Read) -> str:
    of = read("reproduction", "reference")
    columns = [f"{layer}, K = {level}" for layer in LAYERS for level in LEVELS]
    at = [(layer, level) for layer in LAYERS for level in LEVELS]
    return _by_method(
        columns, lambda m: (_numbers((of.ones(m, la, level=k), of.zeros(m, la, level=k)), 1) for la, k in at)
    )


def effect_of_radius(read: Read) -> str:
    of = read("reproduction-radii", "reference")
    columns = [f"{layer}, σ = {sigma}" for layer in LAYERS for sigma in SIGMAS]
    at = [(layer, sigma) for layer in LAYERS for sigma in SIGMAS]

    def cell(method: str, layer: str, sigma: float) -> str:
        place = _number(of.localisation(method, layer, sigma=sigma), 2)
        return f"{of.certified(method, layer, sigma=sigma):.1f} % / {place}"

    return _by_method(columns, lambda method: (cell(method, *here) for here in at))


def effect_of_tau(read: Read) -> str:
    of = read("reproduction", "reference")
    columns = [f"{layer}, τ = {tau}" for layer in LAYERS for tau in TAUS]
    at = [(layer, tau) for layer in LAYERS for tau in TAUS]
    return _by_method(columns, lambda method: (_number(of.certified(method, layer, tau=tau), 1) for layer, tau in at))


def test_and_sign(read: Read) -> str:
    """The published test on magnitudes, our test on magnitudes, and our test on signed values, on the same images."""
    published, own = (read("reproduction-radii", preset) for preset in PRESETS)
    magnitudes = read("reproduction-signs", "default")
    columns = [f"{layer}: {what}" for layer in LAYERS for what in ("published", "our test", "our test, signed")]
    at = [(layer, of) for layer in LAYERS for of in (published, magnitudes, own)]
    return _by_method(columns, lambda method: (_number(of.certified(method, layer), 1) for layer, of in at))


def masks(read: Read) -> str:
    found = [read("reproduction-masks", preset) for preset in PRESETS]
    lines = (
        (f"{count} masks", level, *(f"{of.certified(f'rise-{count}', 'input', level=level):.1f} %" for of in found))
        for count in (1000, 6000)
        for level in LEVELS
    )
    return _markdown(("RISE, input", "K", *PRESETS.values()), lines)


def networks(read: Read) -> str:
    studies = {"reproduction": "resnet18", **OTHER_NETWORKS}
    found = {model: read(study, "reference", model) for study, model in studies.items()}
    columns = [f"{layer}: {model}" for layer in LAYERS for model in found]

    def cell(of: Evidence, method: str, layer: str) -> str:
        return f"{of.certified(method, layer):.1f} % / {_number(of.localisation(method, layer), 2)}"

    return _by_method(columns, lambda method: (cell(of, method, layer) for layer in LAYERS for of in found.values()))


def intervals(read: Read) -> str:
    """Certified GridPG beside the interval in which the majority labels' own ratio stays within R."""
    of = read("reproduction", "default")

    def cell(method: str, layer: str) -> str:
        mean = of.mean("certified_grid_pg", method, layer, scene="grid")
        if mean.value is None or mean.low is None or mean.high is None:
            return "undefined"
        return f"{mean.value:.2f} in [{mean.low:.2f}, {mean.high:.2f}]"

    return _by_method(LAYERS, lambda method: (cell(method, layer) for layer in LAYERS))


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
}


# ── Markdown ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_method(columns: Sequence[str], cells: Callable[[str], Iterable[str]]) -> str:
    return _markdown(("method", *columns), ((method.short, *cells(name)) for name, method in pc.METHODS.items()))


def _markdown(header: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def _shares(of: Evidence, method: str, layer: str) -> str:
    return _numbers((of.ones(method, layer), of.zeros(method, layer), of.certified(method, layer)), 1) + " %"


def _numbers(values: Iterable[float], digits: int) -> str:
    return " / ".join(_number(value, digits) for value in values)


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
