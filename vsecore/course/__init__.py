"""The course's own machinery: what notebooks call, and what runs, grades and prints them.

Nothing of the model code imports it.
"""

from vsecore.course.lesson import Lesson, begin, check_machine, numbers, published

__all__ = ["Lesson", "begin", "check_machine", "numbers", "published"]
