"""Teaching with the course: learner copies without solutions, grading, and the instructor's tables."""

from vsecore.grading.grade import grade
from vsecore.grading.instructor import instructor_page
from vsecore.grading.learner import LEARNER_FOLDER, write_learner_copies

__all__ = ["LEARNER_FOLDER", "grade", "instructor_page", "write_learner_copies"]
