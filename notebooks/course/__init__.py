"""What notebooks import, and what runs them and makes learners' copies. Nothing in ``vsecore`` imports it."""

from course import drawings
from course.explainer.laying import explain
from course.lesson import Lesson, begin, check_machine, numbers
from course.standings import scoreboard

__all__ = ["Lesson", "begin", "check_machine", "drawings", "explain", "numbers", "scoreboard"]
