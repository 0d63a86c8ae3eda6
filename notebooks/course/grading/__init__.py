"""Teaching with the course: copies for learners, and grading."""

from course.grading.copies import LEARNER_FOLDER, Fate, write_learner_copies, write_package
from course.grading.grade import grade_folder
from course.grading.otter import write_assignments

__all__ = [
    "LEARNER_FOLDER",
    "Fate",
    "grade_folder",
    "write_assignments",
    "write_learner_copies",
    "write_package",
]
