"""`python -m course.explainer`: train the explainer's systems anew, all or some by name."""

import sys

from course.explainer.trained import make

if __name__ == "__main__":
    make(sys.argv[1:])
