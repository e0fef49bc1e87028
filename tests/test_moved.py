"""Import paths of 0.1.0 that its documentation showed still work, and say where things are now."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pixelcert.basics.moved import MOVED

SHOWN = {  # in the documentation of 0.1.0
    "pixelcert.errors": "ArgumentError",
    "pixelcert.data": "find_photographs",
    "pixelcert.models.embedded": "photographs",
    "pixelcert.models.grid": "for_grid",
    "pixelcert.models.torchvision_import": "torchvision_models",
}


def test_all_moved_paths_are_tested():
    assert SHOWN.keys() == MOVED.keys()


@pytest.mark.parametrize(("old", "name"), SHOWN.items())
def test_an_old_path_gives_the_same_object_with_a_warning(old, name):
    """In a new process, because a module is imported once."""
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    from {old} import {name} as old\n"
        f"from {MOVED[old]} import {name} as new\n"
        "assert old is new\n"
        "print(*(warning.message for warning in caught if warning.category is FutureWarning), sep='\\n')\n"
        f"import {MOVED[old]} as module\n"
        f"assert module.__spec__.name == {MOVED[old]!r}\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"{old} is now {MOVED[old]}" in said


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pixelcert.image", "resize_image"),
        ("pixelcert.figures", "Findings"),
        ("pixelcert.figures", "draw"),
        ("pixelcert.figures", "save"),
        ("pixelcert.methods.lrp", "LRP"),
        ("pixelcert.attacks", "attack_certificate"),
        ("pixelcert.attacks", "choose_pixels"),
        ("pixelcert.attacks", "summarise"),
    ],
)
def test_paths_that_the_documentation_shows_are_there(module, name):
    subprocess.run([sys.executable, "-c", f"from {module} import {name}"], check=True)


def test_modules_of_an_old_package_are_no_copies():
    code = (
        "from pixelcert.data.folder import Photograph as old\n"
        "from pixelcert.photographs.folder import Photograph as new\n"
        "assert old is new\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "pixelcert.data.folder is now pixelcert.photographs.folder" in said


def test_other_names_are_unknown_as_before():
    with pytest.raises(ModuleNotFoundError):
        __import__("pixelcert.nothing")
