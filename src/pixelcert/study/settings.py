"""Settings: the keys of a study file, and errors that name the key and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)

from ..basics.messages import ArgumentError
from ..explainer import Precision, Tuning
from ..methods import METHODS
from ..plan import ALPHA, LEVELS, PRESETS, SIGMA, TAU, Correction, Criterion, N, Plan, Preset, Sign, check_levels

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _check_count(count: Any) -> Any:
    if count == "all" or (type(count) is int and count >= 0):
        return count
    raise ValueError('is neither a number of images nor "all": use one of these')


_AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, (list, tuple)) else (value,))
_SOME = Field(min_length=1)
Name = Annotated[str, _SOME]
# One value, or a list of them: each is an axis of the study.
Names = Annotated[tuple[Name, ...], _AS_TUPLE, _SOME]
Numbers = Annotated[tuple[float, ...], _AS_TUPLE, _SOME]
Levels = Annotated[Numbers, AfterValidator(check_levels)]
Alpha = Annotated[float, AfterValidator(lambda alpha: Criterion(alpha=alpha).alpha)]
Counts = Annotated[tuple[int, ...], _AS_TUPLE, _SOME]
Presets = Annotated[tuple[Preset, ...], _AS_TUPLE, _SOME]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ImageSettings(_Table):
    """The photographs that are certified."""

    folder: str = "embedded"
    labels: str | None = None
    synsets: str | None = None
    count: Annotated[int | Literal["all"], PlainValidator(_check_count)] = "all"
    filter: Annotated[tuple[str, ...], _AS_TUPLE] = ()
    confidence: float = Field(default=0.99, ge=0, le=1)
    seed: int = Field(default=0, ge=0)


class GridSettings(_Table):
    """The Grid Pointing Game: mosaics of photographs of distinct classes."""

    count: int = Field(default=0, ge=0)
    side: int = Field(default=2, ge=2, le=16)
    cell: int | None = Field(default=None, ge=8)  # pixels; by default as large as the model's images


class ModelSettings(_Table):
    """The model behind a name in `models`: by default the one of that name, with its own weights."""

    model: str | None = None
    weights: str = "DEFAULT"
    size: int | None = Field(default=None, ge=8)


class Settings(_Table):
    """A whole study: models × methods × layers × sigma × n × presets, on images and grids."""

    models: Names
    methods: Names = tuple(METHODS)
    layers: Names = ("input", "final")
    sigma: Numbers = (SIGMA,)
    n: Counts = (N,)
    presets: Presets = ("default",)
    sign: Sign | None = None
    levels: Levels = LEVELS
    tau: Numbers = (TAU,)
    alpha: Alpha = ALPHA
    correction: Correction | None = None
    deletion: Annotated[tuple[float, ...], _AS_TUPLE] | None = None
    seed: int | None = None
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"
    images: ImageSettings = ImageSettings()
    grids: GridSettings = GridSettings()
    model: Mapping[str, ModelSettings] = {}
    method: Mapping[str, Mapping[str, Any]] = {}

    @field_validator("models", "methods", "layers", "sigma", "n", "presets", "tau")
    @classmethod
    def _check_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Refuse a value that is there twice."""
        if twice := sorted({str(value) for value in values if values.count(value) > 1}):
            raise ValueError(f"names {', '.join(twice)} twice: name each value once")
        return values

    @field_validator("tau", "deletion")
    @classmethod
    def _check_tau(cls, taus: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """Return numbers that criteria hold; refuse an invalid τ."""
        return taus and tuple(Criterion(tau).tau for tau in taus)

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        self._check_tables()
        for name in self.methods:
            self._check_method(name)
        if self.deletion is not None and (strange := set(self.deletion) - set(self.tau)):
            raise ValueError(f"deletion: {sorted(strange)} is not in tau = {list(self.tau)}: choose from those")
        if self.correction == "reference" and set(self.presets) != {"reference"}:
            raise ValueError('correction = "reference": it only tests votes of presets = ["reference"], name only that')
        if self.images.count == 0 and self.grids.count == 0:
            raise ValueError("images.count and grids.count are both 0, so there is nothing to certify: raise one")
        if "reference" in self.presets and min(self.n) <= (guess := PRESETS["reference"]["guess"]):
            raise ValueError(f"n = {min(self.n)}: the reference preset spends {guess} samples on guessing, use more")
        self.plans()  # refuses a sigma, n or seed that no plan can have
        return self

    def _check_tables(self) -> None:
        """Refuse a table for a name that the study does not use."""
        of_models = ("model", self.model, (*self.models, *self.images.filter))
        for table, given, listed in (of_models, ("method", self.method, self.methods)):
            for name in given:
                if name not in listed:
                    raise ValueError(
                        f"{table}.{name}: {name!r} is not in {table}s = {list(listed)}: add it, or remove the table"
                    )

    def _check_method(self, name: str) -> None:
        for layer in (key for key, value in self.method.get(name, {}).items() if isinstance(value, Mapping)):
            if layer not in self.layers:
                raise ValueError(
                    f"method.{name}.{layer}: {layer!r} is not in layers = {list(self.layers)}: add it there"
                )
            self._check_parameters(name, layer)
        self._check_parameters(name)

    def _check_parameters(self, name: str, layer: str | None = None) -> None:
        base, params = self.method_named(name, layer)
        if base not in METHODS:
            raise ValueError(
                f"methods: {name!r} is not a method: choose from {', '.join(METHODS)}, or give a variant its base by "
                f'[method.{name}] method = "rise"'
            )
        for key, value in params.items():
            try:
                METHODS[base].check_parameters({key: value})
            except ArgumentError as error:
                raise ValueError(f"method.{name}.{key}: {error}") from error

    # ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────

    def model_named(self, name: str) -> ModelSettings:
        """Return the model behind a name in `models` or `images.filter`."""
        given = self.model.get(name, ModelSettings())
        return given.model_copy(update={"model": given.model or name})

    def method_named(self, name: str, layer: str | None = None) -> tuple[str, dict[str, Any]]:
        """Return the method and parameters behind a name in `methods`; a table for the layer overrides others."""
        given = self.method.get(name, {})
        params = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
        params |= given.get(layer, {}) if layer else {}
        return str(params.pop("method", name)), params

    def plans(self) -> dict[tuple[Preset, float, int], Plan]:
        """Return the sampling plans, by preset, sigma and n; without a seed if the file names none."""
        same: dict[str, Any] = {"sign": self.sign, "levels": self.levels, "seed": self.seed}
        points = product(self.presets, self.sigma, self.n)
        return {(preset, sigma, n): Plan.make(preset=preset, sigma=sigma, n=n, **same) for preset, sigma, n in points}

    def criterion(self, tau: float) -> Criterion:
        """Return the study's test at one τ."""
        return Criterion(tau, self.alpha, self.correction)

    @property
    def tuning(self) -> Tuning:
        """The way in which the study's explainers are computed."""
        return Tuning(precision=self.precision, compile=self.compile)

    @property
    def deletion_taus(self) -> tuple[float, ...]:
        """The τ at which deletion is measured: as asked, else the paper's τ or the first one."""
        if self.deletion is not None:
            return self.deletion
        return (TAU,) if TAU in self.tau else self.tau[:1]


def load_settings(path: str | Path) -> Settings:
    """Return the settings in a study file; the error for a bad file lists all its mistakes."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ArgumentError(f"{path} does not exist: `pixelcert study init {path}` writes one.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read as text ({error}): give a TOML file.") from error
    try:
        return Settings.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{path} is not valid TOML ({error}): correct that line.") from error
    except ValidationError as error:
        lines = "\n".join(f"  {_in_words(mistake)}" for mistake in error.errors())
        raise ArgumentError(f"{path} cannot be run as it is:\n{lines}") from error


def _in_words(mistake: Any) -> str:
    """Return one of pydantic's findings as a line with the key, the value and the remedy."""
    key = ".".join(part for part in mistake["loc"] if isinstance(part, str))  # without places in lists
    if mistake["type"] == "extra_forbidden":
        table = Settings if len(mistake["loc"]) == 1 else _TABLES.get(str(mistake["loc"][0]), Settings)
        return f"{key} is not a key of a study: use one of {', '.join(table.model_fields)}."
    if mistake["type"] == "missing":
        return f'{key} is missing: give it, such as {key} = ["resnet18"].'
    if mistake["type"] in ("dict_type", "model_type", "mapping_type"):
        return f"{key} = {mistake['input']!r}: is a table of keys, so write [{key}] and its keys below."
    if mistake["type"] == "too_short":
        return f"{key} is empty: name at least one."
    message = mistake["msg"].removeprefix("Value error, ").rstrip(".")
    if not key:
        return f"{message}."
    value = f" = {mistake['input']!r}" if isinstance(mistake["input"], (str, int, float, bool)) else ""
    return f"{key}{value}: {message[:1].lower()}{message[1:]}."


_TABLES: dict[str, type[BaseModel]] = {"images": ImageSettings, "grids": GridSettings, "model": ModelSettings}
