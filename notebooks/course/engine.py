"""The small trained network that comes with the course, so that the first search needs no training.

It is what the first notebook trains. `python -m course.engine` makes it anew.
"""

from safetensors.torch import load_file, save

from course.lesson import Lesson
from vsecore import records, scenes
from vsecore.data.files import write_whole
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.paths import assets, results
from vsecore.recipes import get
from vsecore.training import evaluate_split, fit

FIRST_RECIPE = get("vsepp_grid_gru").override(
    {
        "dim": 192,
        "text.encoder.word_dim": 96,
        "losses": "info_nce",
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    }
)
"""How it was trained: minutes on two cores."""
FOLDER = assets() / "first_engine"
WEIGHTS = FOLDER / "model.safetensors"
RECORDS = results() / "first_engine"
WIDTH = 144  # of the scenes' grid features


def first_engine() -> tuple[VSE, Vocabulary]:
    """The trained network, in evaluation mode, and the vocabulary that its captions are read with."""
    vocabulary = Vocabulary.load(FOLDER)
    model = FIRST_RECIPE.build(WIDTH, vocabulary)
    model.load_state_dict(load_file(WEIGHTS))
    return model.eval(), vocabulary


def opened(lesson: Lesson) -> tuple[VSE, Tokenizer]:
    """The network for a notebook's first search: of photographs there is none yet, so it is trained."""
    if lesson.data == "scenes":
        return first_engine()
    run = lesson.trained(FIRST_RECIPE, lesson.dataset("grid"))
    return run.model, run.tokenizer


def make() -> None:
    """Train it, write it into the assets, and record how good it is."""
    data = scenes.load()
    run = fit(FIRST_RECIPE, data, seed=0)
    FOLDER.mkdir(exist_ok=True)
    run.tokenizer.save(FOLDER)
    write_whole(WEIGHTS, save(run.model.state_dict()))
    metrics = evaluate_split(run.model, data.test, run.tokenizer)
    records.write(records.record_run(run, metrics, "the network that comes with the course"), RECORDS)


if __name__ == "__main__":
    make()
