"""`pixelcert certify`, `models` and `methods`: prepare, sample into files, and show certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from .. import statistics
from ..basics.files import check_name
from ..basics.machine import check_device
from ..basics.messages import ArgumentError
from ..certificate import Certificate, certify_votes
from ..explainer import Tuning as Tuning
from ..image import check_image_file, load_image
from ..methods import METHODS, Method, check_method, method
from ..models.loading import PAPER_MODELS, check_weights, load_model, model_names, photographs
from ..plan import Criterion, Plan
from ..sampling.checkpoint import Place, explainer_of, find_votes, image_of, sample_into
from ..sampling.sample import Interrupted, SamplingError, Subject
from ..votes import Provenance
from . import terminal
from .votes import Result, draw, make_folder, picture_file, show_results


class ModelOptions(NamedTuple):
    """The model, as the options name it."""

    name: str  # "" for the one that votes name
    weights: str
    device: str | None

    def check(self) -> None:
        """Refuse options with which no model can be loaded."""
        check_device(self.device)
        check_weights(self.weights)

    def of_votes(self, source: Provenance) -> ModelOptions:
        """Return the options, with the model and weights of votes where none are given.

        A votes file may come from anybody, so code that it names is not run unasked.
        """
        origin = source.origin or {}
        name = origin.get("model", source.model)
        if not self.name and ":" in name:
            raise ArgumentError(f"the votes say that {name} made their model: give --model {name} to run that code.")
        weights = origin.get("weights", "DEFAULT") if self.weights == "DEFAULT" and not self.name else self.weights
        found = self._replace(name=self.name or name, weights=weights)
        found.check()
        return found


def recalled(
    certificates: Sequence[Certificate], images: Sequence[Path], options: ModelOptions
) -> Iterator[tuple[Method, Tensor]]:
    """Yield the explainer and the image that each certificate is about; a model is loaded once."""
    load = cache(load_model)
    for certificate in certificates:
        source = certificate.votes.provenance
        explainer = explainer_of(source, partial(load, *options.of_votes(source)))
        yield explainer, image_of(certificate.votes, images)


class Output(NamedTuple):
    """The folder for votes and pictures, and what to do with votes that are already there."""

    folder: Path
    picture: bool
    resume: bool
    overwrite: bool


class Prepared:
    """Photographs that are ready to be certified, and the places of their results."""

    def __init__(
        self,
        images: Sequence[Path],
        target: str | None,
        model_options: ModelOptions,
        name: str,  # of the method
        layer: str | None,
        texts: Sequence[str],  # parameters of the method, NAME=VALUE
        plan: Plan,
        criterion: Criterion,
        tuning: Tuning,
        output: Output,
    ) -> None:
        """Check everything and load it; the cheapest checks come first."""
        self.plan, self.criterion, self.tuning = plan, criterion, tuning
        params = dict(map(_parse_parameter, texts))
        tuning.check()
        model_options.check()
        check_method(name, params)
        paths = images or photographs()
        for path in paths:
            check_image_file(path)
        make_folder(output.folder, paths, "images", "rename or run them separately")
        explained = f"{name}-{layer or METHODS[name].layers[0]}"
        self.places = [Place.of(output.folder / f"{path.stem}-{explained}.safetensors") for path in paths]
        for place in self.places:
            check_name(place.partial)
        wholes = [place.whole for place in self.places]
        self.pictures = [picture_file(whole, plan, criterion) if output.picture else None for whole in wholes]
        model = load_model(*model_options)
        statistics.check_feasible(plan, criterion, model.size**2)
        self.explainer = method(name, model, layer, **params)
        loaded = [load_image(path, model.size) for path in paths]
        targets = [model.predict(image)[0] if target is None else model.class_index(target) for image in loaded]
        self.subjects = [Subject(*each) for each in zip(loaded, targets, (path.name for path in paths), strict=True)]
        found = [
            find_votes(place, plan, self.explainer, subject, tuning, output.overwrite)
            for place, subject in zip(self.places, self.subjects, strict=True)
        ]
        for place, votes in zip(self.places, found, strict=True):
            if votes and plan.seed is None and not (output.resume or output.overwrite):
                raise ArgumentError(
                    f"{place.whole if votes.complete else place.partial} holds votes of these settings already: "
                    f"--resume reuses or continues them, --overwrite samples again with a fresh seed."
                )
        self.begun = [votes if output.resume else None for votes in found]  # earlier votes to be continued

    def run(self, as_json: bool) -> int:
        """Sample into the files, draw the pictures, and show the certificates."""
        results = []
        with terminal.progress() as track:
            bars = [track(subject.name) for subject in self.subjects]
            if self.begun[0] is None:
                bars[0](0, self.plan.n)  # at once: the first batch of a slow method takes minutes
            subjects = [subject._replace(progress=bar) for subject, bar in zip(self.subjects, bars, strict=True)]
            places = [[place] for place in self.places]
            try:
                sampled = sample_into(places, [self.plan], self.explainer, subjects, self.begun, self.tuning)
                for place, picture, (votes,) in zip(self.places, self.pictures, sampled, strict=True):
                    results.append(draw(Result(certify_votes(votes, self.criterion), place.whole, picture)))
            except (Interrupted, SamplingError) as stop:
                counted = f"{stop.votes.counted} of {self.plan.n} samples"
                file = self.places[len(results)].partial
                terminal.say(f"{counted} are saved in {file}: run the same command with --resume to continue.")
                if isinstance(stop, Interrupted):
                    return terminal.INTERRUPTED
                raise
        for result, begun in zip(results, self.begun, strict=True):
            before = begun.counted if begun else 0  # a later batch size was halved because memory ran out
            halved = [batch for batch in result.certificate.votes.provenance.batches or () if batch[0] > before]
            if sizes := "; ".join(f"from sample {first} on, {size} images at once" for first, size in halved):
                terminal.note(f"{result.image}: memory ran out: {sizes}.")
        show_results(results, as_json)
        return terminal.DONE


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--param {text!r} has no value: write NAME=VALUE, such as relu=false.")
    with suppress(ValueError):  # texts need no quotes
        return name, json.loads(value)
    return name, value


# ── Lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def list_models(as_json: bool) -> None:
    """List the models that are known by name."""
    names = model_names()
    if as_json:
        terminal.print_json(names)
        return
    terminal.out.print(f"[bold]{names[0]}[/]  embedded with pixelcert\\[demo], real weights, no download")
    terminal.out.print(f"[bold]{', '.join(PAPER_MODELS)}[/]  the paper's five")
    terminal.out.print(f"Others of torchvision: {', '.join(name for name in names[1:] if name not in PAPER_MODELS)}")
    terminal.out.print("Your own: --model package.module:function, a function that returns a pixelcert.Classifier")


def list_methods(as_json: bool) -> None:
    """List the methods with their layers, parameters and costs."""
    if as_json:
        facts = ("title", "family", "layers", "cost", "citation")
        about = {name: {fact: getattr(kind, fact) for fact in facts} for name, kind in METHODS.items()}
        terminal.print_json({name: {**row, "parameters": METHODS[name].parameters()} for name, row in about.items()})
        return
    for family in dict.fromkeys(kind.family for kind in METHODS.values()):
        terminal.out.print(f"\n[bold underline]{family}[/]")
        for kind in (kind for kind in METHODS.values() if kind.family == family):
            layers = ", ".join("any module" if layer == "*" else layer for layer in kind.layers)
            meanings = {name: f" ({meaning})" for name, meaning in kind.meanings.items()}
            values = [f"{name}={value}{meanings.get(name, '')}" for name, value in kind.parameters().items()]
            terminal.out.print(f"[bold]{kind.name}[/]  {kind.title} ({kind.citation})")
            terminal.out.print(f"    layers: {layers}\n    parameters: {', '.join(values) or 'none'}")
            terminal.out.print(f"    cost per noisy image: {kind.cost}")
