"""Visual-semantic embedding, from the parts that teach it to the loop that trains it."""

__version__ = "0.1.0"
