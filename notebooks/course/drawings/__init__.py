"""What the notebooks draw: the whole system here, and one module for each notebook's own figures."""

from course.drawings.whole import system

__all__ = ["system"]
