"""Count what makes a package large: modules, lines, names, hidden imports. Run `python -m bench.house [FOLDER]`.

Logical lines are lines of code: without docstrings, comments and blank lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


_HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)  # of docstrings


class House(NamedTuple):
    """The size of a package."""

    modules: int
    median_lines: float
    root_modules: int
    largest_folder: int
    hidden_imports: int  # of the package's own modules, inside functions
    public_functions: int  # of modules, without the methods of classes
    private_functions: int
    logical_lines: int
    odd_docstrings: int


def logical_lines(text: str) -> int:
    """Count the lines that hold code.

    >>> logical_lines('def f():\\n    "Say."\\n\\n    return (1,  # one\\n        2)\\n')
    3
    """
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _HOLDERS) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            skipped.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - skipped)


def measure(package: Path) -> House:
    """Measure every module below `package`."""
    files = sorted(package.rglob("*.py"))
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    functions = [node for tree in trees.values() for node in tree.body if isinstance(node, ast.FunctionDef)]
    private = sum(one.name.startswith("_") for one in functions)
    folders = [len(list(folder.glob("*.py"))) for folder in {file.parent for file in files}]
    return House(
        modules=len(files),
        median_lines=median(len(file.read_text(encoding="utf-8").splitlines()) for file in files),
        root_modules=len(list(package.glob("*.py"))),
        largest_folder=max(folders),
        hidden_imports=sum(not each.libraries for tree in trees.values() for each in hidden_imports(tree)),
        public_functions=len(functions) - private,
        private_functions=private,
        logical_lines=sum(logical_lines(file.read_text(encoding="utf-8")) for file in files),
        odd_docstrings=sum(len(odd_docstrings(tree)) for tree in trees.values()),
    )


class Hidden(NamedTuple):
    """An import inside a function."""

    function: str  # by its qualified name, such as Class.method
    node: ast.Import | ast.ImportFrom

    @property
    def libraries(self) -> set[str]:
        """The libraries that it leads to; none where it stays inside the package."""
        if isinstance(self.node, ast.Import):
            return {name.name.split(".")[0] for name in self.node.names}
        return set() if self.node.level else {str(self.node.module).split(".")[0]}


def hidden_imports(tree: ast.Module) -> list[Hidden]:
    """Return the imports that stay inside functions, of own modules and of libraries.

    >>> text = "class A:\\n def f(self):\\n  from . import b\\n  import c.d, e\\ndef f():\\n import g"
    >>> [(each.function, sorted(each.libraries)) for each in hidden_imports(ast.parse(text))]
    [('A.f', []), ('A.f', ['c', 'e']), ('f', ['g'])]
    """
    return list(_find_hidden(tree, (), False))


def _find_hidden(node: ast.AST, names: tuple[str, ...], inside: bool) -> Iterator[Hidden]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)) and inside:
            yield Hidden(".".join(names), child)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _find_hidden(child, (*names, child.name), True)
        elif isinstance(child, ast.ClassDef):
            yield from _find_hidden(child, (*names, child.name), inside)
        else:
            yield from _find_hidden(child, names, inside)


def odd_docstrings(tree: ast.Module) -> list[str]:
    """Return first lines of docstrings that begin with a question word or Of, which reads as a riddle."""
    odd = ("What ", "Which ", "How ", "Whether ", "Where ", "Whose ", "Of ")
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, _HOLDERS)]
    return [text.splitlines()[0] for text in texts if text.startswith(odd)]


def main() -> None:
    """Print the measures of one or several packages side by side."""
    packages = [Path(name) for name in sys.argv[1:]] or [Path(__file__).parents[1] / "src" / "pixelcert"]
    measured = [measure(package) for package in packages]
    for name in House._fields:
        print(f"{name.replace('_', ' '):20}", *(f"{getattr(house, name):>10g}" for house in measured))


if __name__ == "__main__":
    main()
