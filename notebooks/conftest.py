"""For `pytest --nbval`: a progress bar is output too, and never the same twice."""

import os

os.environ["VSECORE_BATCH"] = "1"
