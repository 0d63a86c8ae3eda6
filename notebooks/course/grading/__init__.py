"""Teaching with the course: copies for learners, and grading."""
