"""The explainer: a page on which a sentence finds its picture, with small systems that run in the page."""
