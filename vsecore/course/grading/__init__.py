"""Teaching with the course: copies for learners, grading, and the instructor's tables."""

from vsecore.course.grading.grade import Grading, grade_folder
from vsecore.course.grading.instructor import instructor_page
from vsecore.course.grading.learner import LEARNER_FOLDER, write_learner_copies, write_package

__all__ = [
    "LEARNER_FOLDER",
    "Grading",
    "grade_folder",
    "instructor_page",
    "write_learner_copies",
    "write_package",
]
