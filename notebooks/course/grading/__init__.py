"""Teaching with the course: copies for learners, grading, and the instructor's tables."""

from course.grading.copies import LEARNER_FOLDER, Fate, write_learner_copies, write_package
from course.grading.grade import Grading, grade_folder
from course.grading.instructor import instructor_page

__all__ = [
    "LEARNER_FOLDER",
    "Fate",
    "Grading",
    "grade_folder",
    "instructor_page",
    "write_learner_copies",
    "write_package",
]
