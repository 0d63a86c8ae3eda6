"""`python -m course.explainer`: train the explainer's systems and films anew, all or some by name."""

import sys

from course.explainer import film, trained

if __name__ == "__main__":
    asked = sys.argv[1:]
    films = [name for name in film.FILMS if name in asked or not asked]
    if systems := [name for name in asked or trained.SYSTEMS if name not in films]:
        trained.make(systems)
    for one in films:
        film.make(one)
