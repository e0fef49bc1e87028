"""`pixelcert certify`, `models` and `methods`: prepare, sample into files, and show certificates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import statistics
from ..basics.machine import check_device
from ..basics.messages import ArgumentError
from ..certificate import certify_votes
from ..explainer import Tuning
from ..image import check_image_file, load_image
from ..methods import METHODS, Method, check_method
from ..methods import method as make_method
from ..models import load_model, model_names
from ..models.loading import PAPER_MODELS, check_weights, photographs
from ..plan import Criterion, Plan
from ..sampling.checkpoint import Place, find_votes, picture_file, sample_into, votes_places
from ..sampling.loop import Interrupted, SamplingError
from ..sampling.sample import Subject
from ..votes import Votes
from . import DONE, INTERRUPTED, terminal
from .votes import Result, draw, show_results


class Named(NamedTuple):
    """The model and the method, as the options name them."""

    model: str
    weights: str
    device: str | None
    method: str
    layer: str | None
    params: dict[str, Any]


class Job(NamedTuple):
    """Photographs that are ready to be certified, and where everything goes."""

    explainer: Method
    subjects: list[Subject]
    places: list[Place]
    pictures: list[Path | None]
    found: list[Votes | None]  # earlier votes to be continued
    plan: Plan
    criterion: Criterion
    tuning: Tuning


def prepare(
    images: Sequence[Path] | None,
    named: Named,
    target: str | None,
    plan: Plan,
    criterion: Criterion,
    tuning: Tuning,
    out: Path,
    overwrite: bool,
    resume: bool,
    picture: bool,
) -> Job:
    """Check everything and load it; the cheapest checks come first."""
    tuning.check()
    check_device(named.device)
    check_weights(named.weights)
    check_method(named.method, named.params)
    paths = images or photographs()
    for path in paths:
        check_image_file(path)
    places = votes_places(paths, out, named.method, named.layer or METHODS[named.method].layers[0])
    pictures = [picture_file(place.whole, plan, criterion) if picture else None for place in places]
    model = load_model(named.model, named.weights, named.device)
    statistics.check_feasible(plan, criterion, model.size**2)
    explainer = make_method(named.method, model, named.layer, **named.params)
    loaded = [load_image(path, model.size) for path in paths]
    targets = [model.predict(image)[0] if target is None else model.class_index(target) for image in loaded]
    subjects = [Subject(*each) for each in zip(loaded, targets, (path.name for path in paths), strict=True)]
    found = [
        find_votes(place, plan, explainer, subject, tuning, overwrite)
        for place, subject in zip(places, subjects, strict=True)
    ]
    begun = [votes if resume else None for votes in found]
    return Job(explainer, subjects, places, pictures, begun, plan, criterion, tuning)


def run(job: Job, as_json: bool) -> int:
    """Sample into the files, draw the pictures, and show what is certified."""
    results = []
    with terminal.progress() as track:
        bars = [track(subject.name) for subject in job.subjects]
        if job.found[0] is None:
            bars[0](0, job.plan.n)  # at once: the first batch of a slow method takes minutes
        subjects = [subject._replace(progress=bar) for subject, bar in zip(job.subjects, bars, strict=True)]
        places = [[place] for place in job.places]
        try:
            sampled = sample_into(places, [job.plan], job.explainer, subjects, job.found, job.tuning)
            for place, picture, (votes,) in zip(job.places, job.pictures, sampled, strict=True):
                results.append(draw(Result(certify_votes(votes, job.criterion), place.whole, picture)))
        except (Interrupted, SamplingError) as stop:
            counted = f"{stop.votes.counted} of {stop.votes.plan.n} samples"
            partial_file = job.places[len(results)].partial
            terminal.say(f"{counted} are saved in {partial_file}; the same command with --resume goes on.")
            if isinstance(stop, Interrupted):
                return INTERRUPTED
            raise
    show_results(results, as_json)
    return DONE


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return parameters by name, from texts NAME=VALUE."""
    return dict(_parse_parameter(text) for text in texts)


def _parse_parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--param {text!r} has no value: write NAME=VALUE, such as relu=false.")
    try:
        return name, json.loads(value)
    except ValueError:
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
    methods = list(METHODS.values())
    if as_json:
        facts = ("title", "family", "layers", "cost", "citation")
        rows = ({fact: getattr(method, fact) for fact in facts} for method in methods)
        terminal.print_json(
            {m.name: {**row, "parameters": m.parameters()} for m, row in zip(methods, rows, strict=True)}
        )
        return
    for family in dict.fromkeys(method.family for method in methods):
        terminal.out.print(f"\n[bold underline]{family}[/]")
        for method in (method for method in methods if method.family == family):
            layers = ", ".join("any module" if layer == "*" else layer for layer in method.layers)
            parameters = ", ".join(_parameter(method, *item) for item in method.parameters().items()) or "none"
            terminal.out.print(f"[bold]{method.name}[/]  {method.title} ({method.citation})")
            terminal.out.print(
                f"    layers: {layers}\n    parameters: {parameters}\n    cost per noisy image: {method.cost}"
            )


def _parameter(method: type[Method], name: str, value: object) -> str:
    """A parameter's default, and what it stands for where the number does not tell."""
    meanings = {
        ("occlusion", "window"): "16 at the input, 5 at other layers",
        ("occlusion", "stride"): "8 at the input, 2 at other layers",
    }
    meaning = meanings.get((method.name, name))
    return f"{name}={value} ({meaning})" if meaning else f"{name}={value}"
