"""`vse recipes`, `vse parts` and `vse experiments`: what there is, by name."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vsecore.recipes import Recipe

PAPER = re.compile(r"[^:;]*?\d{4}( \([^)]*\))?")
"""How a recipe's source begins: authors, year, and what the work is called."""


def recipes(name: str = "") -> None:
    """List the recipes; or write one as YAML, which vse train takes again, and the variants that fit it.

    Options:
        name: A recipe, perhaps with +variants. Leave it out to see all.
    """
    from vsecore.recipes import RECIPES, get
    from vsecore.recipes.written import written

    if not name:
        width = max(map(len, RECIPES))
        for recipe in RECIPES.values():
            paper = PAPER.match(recipe.source)
            typer.echo(f"{recipe.name:<{width}}  {paper[0] if paper else 'chosen here'}: {_parts(recipe)}")
        return
    recipe = get(name)
    typer.echo(written(recipe), nl=False)
    typer.echo(f"# variants that change it: {', '.join(_variants(recipe))}")


def _parts(recipe: Recipe) -> str:
    """Say a recipe's parts in one line: picture tower | caption tower | similarity | losses."""
    towers = [
        " > ".join(part.name for part in (tower.encoder, tower.reasoner, recipe.shared, tower.pool) if part)
        for tower in (recipe.image, recipe.text)
    ]
    rounds = "; first a round for negatives" if recipe.first_round else ""
    losses = " + ".join(part.name for part in recipe.losses)
    return f"{' | '.join([*towers, recipe.similarity.name, losses])}{rounds}"


def _variants(recipe: Recipe) -> list[str]:
    from vsecore.recipes import VARIANTS

    found, own = [], recipe.hash()
    for variant, changes in VARIANTS.items():
        try:
            if recipe.override(changes).hash() != own:
                found.append(variant)
        except ValueError:  # it has no such part
            continue
    return found


def parts(name: str = "") -> None:
    """List the parts that a recipe can name, with their options and defaults.

    Options:
        name: A part, to read its whole description, or a kind of parts. Leave it out to see all.
    """
    from vsecore.recipes.recipe import PARTS
    from vsecore.typed import unknown

    kinds = {registry.kind: registry for registry in PARTS.values()}
    names = {part for registry in kinds.values() for part in registry}
    if name and name not in {*kinds, *names}:
        raise unknown("part", name, {*kinds, *names})
    for kind, registry in kinds.items():
        chosen = [part for part in registry if name in ("", kind, part)]
        if chosen:
            places = ", ".join(place for place, known in PARTS.items() if known is registry)
            typer.echo(f"{kind} ({places}):")
        for part in chosen:
            told = [
                option if one.default is inspect.Parameter.empty else f"{option}={one.default!r}"
                for option, one in registry.options(part).items()
            ]
            first, _, rest = (inspect.getdoc(registry[part]) or "").partition("\n")
            typer.echo(f"  {part}({', '.join(told)})  {first}")
            if part == name and rest:
                typer.echo(textwrap.indent(rest, "    "))


def experiments() -> None:
    """List the experiments: the tables of papers, each with its question and its arms."""
    from vsecore.experiments.experiment import EXPERIMENTS

    for name, one in EXPERIMENTS.items():
        typer.echo(f"{name}: {one.question} ({one.source})\n    {' | '.join(one.arms)}")
