"""The explainer: a page on which a sentence finds its picture, with small systems that run in the page."""

from course.explainer.laying import explain, lay_explainer

__all__ = ["explain", "lay_explainer"]
