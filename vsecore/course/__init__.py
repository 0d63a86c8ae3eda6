"""The course's own machinery: what notebooks call, and what runs, grades and prints them.

Nothing of the model code imports it.
"""

from vsecore.course.lesson import Lesson, Report, begin, check_machine, published

__all__ = ["Lesson", "Report", "begin", "check_machine", "published"]
