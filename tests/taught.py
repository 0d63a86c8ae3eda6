"""What the notebooks teach: their functions and classes, and the solutions of their exercises."""

import ast
from functools import cache
from pathlib import Path

import jupytext

TEXTS = {
    path.stem[:2]: path for path in (Path(__file__).parent.parent / "notebooks" / "text").glob("[0-9]*_*.py")
}


@cache
def cells(notebook):
    return tuple(jupytext.read(TEXTS[notebook]).cells)


def definitions(notebook):
    for cell in cells(notebook):
        if cell.cell_type == "code":
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                    yield node


@cache
def taught(notebook):
    """All functions and classes of a notebook, by their names, without running its experiments."""
    space = {}
    for node in definitions(notebook):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []  # `exercise` would put a right answer in place of a wrong one
        exec(compile(ast.Module([node], []), str(TEXTS[notebook]), "exec"), space)
    return space


@cache
def solved():
    """The notebook and the name of the function that solves an exercise, by the exercise's key."""
    found = {}
    for notebook in sorted(TEXTS):
        for node in definitions(notebook):
            match node:
                case ast.FunctionDef(name=name, decorator_list=[ast.Call(ast.Name("exercise"), [key])]):
                    found[ast.literal_eval(key)] = notebook, name
    return found
