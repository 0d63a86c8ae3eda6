"""Write a notebook as an assignment for otter-grader: one test a trial, which calls the course's own check.

Otter has what schools use, but runs its tests in the learner's own process, and has no limit for a cell.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from course.batch import notebooks
from course.checks import EXERCISES
from course.grading.copies import in_plain_words
from course.grading.parts import BEGINS, ENDS, key_of, with_import
from vsecore.data.files import write_whole


def write_assignments(names: Iterable[str], folder: Path) -> list[Path]:
    """Write stored notebooks as what `otter assign` reads; a file that is there is never written over."""
    made = {folder / path.name: assignment(nbformat.read(path, 4), path.stem) for path in notebooks(names)}
    for path in made:
        if path.exists():
            raise FileExistsError(f"{path} is there already: move it away, or name another folder")
    for path, notebook in made.items():
        write_whole(path, nbformat.writes(notebook) + "\n")
    return list(made)


def assignment(notebook: NotebookNode, name: str) -> NotebookNode:
    """Return a stored notebook as an assignment: each exercise a question, solved, with its tests."""
    settings = {"name": name, "export_cell": False, "tests": {"ok_format": False}}
    cells = [new_raw_cell(f"# ASSIGNMENT CONFIG\n{yaml.safe_dump(settings)}")]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cells.append(new_markdown_cell(in_plain_words(cell.source, None)))
        elif key := key_of(cell.source):
            source, answer = _answer(with_import(cell.source), key)
            question = yaml.safe_dump({"name": key.replace(".", "_")})
            cells += [new_raw_cell(f"# BEGIN QUESTION\n{question}"), new_raw_cell("# BEGIN SOLUTION")]
            cells += [new_code_cell(source), new_raw_cell("# END SOLUTION"), new_raw_cell("# BEGIN TESTS")]
            cells += [_test(key, answer, points) for points in range(1, len(EXERCISES[key].trials) + 1)]
            cells += [new_raw_cell("# END TESTS"), new_raw_cell("# END QUESTION")]
        else:
            cells.append(new_code_cell(cell.source, metadata={"tags": cell.metadata.get("tags", [])}))
    made = new_notebook(cells=[cell for cell in cells if cell.source.strip()])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def _answer(source: str, key: str) -> tuple[str, str]:
    """Return an exercise's cell with otter's marks, and the expression of its answer.

    The decorator `exercise` puts a right function in the place of a wrong one, which tests would pass. So a
    call of `check` below the function stands in for it.
    """
    source = source.replace(ENDS, "# END SOLUTION")
    source = re.sub(rf"^(\s*){BEGINS}$", r"\1# BEGIN SOLUTION", source, flags=re.MULTILINE)
    source = re.sub(rf"  {BEGINS}\b.*", "  # SOLUTION", source)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if node.decorator_list:
                if ast.unparse(node.decorator_list[0]) == f"exercise({key!r})":
                    source = source.replace(f'@exercise("{key}")\n', "")
                    source = source.replace("import exercise", "import check")
                    return f'{source}\n\ncheck("{key}", {name})', name
            case ast.Call(func=ast.Name("check"), args=[ast.Constant(asked), answer]) if asked == key:
                return source, ast.unparse(answer)
    raise ValueError(f"the cell of {key} hands in no answer")


def _test(key: str, answer: str, points: int) -> NotebookNode:
    names = sorted({node.id for node in ast.walk(ast.parse(answer)) if isinstance(node, ast.Name)})
    return new_code_cell(
        f'""" # BEGIN TEST CONFIG\npoints: 1\n""" # END TEST CONFIG\n'
        f"def test_trial_{points}({', '.join(names)}):\n"
        f"    from course.checks import check\n\n"
        f'    judgement = check("{key}", {answer})\n'
        f"    assert judgement.points >= {points}, judgement.message"
    )
