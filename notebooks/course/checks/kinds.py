"""How exercises are written down: as data, from which both the judging and the tests are made.

Each module holds the exercises of one notebook. An exercise has a reference, a function that makes inputs,
and a table of the texts that learners get, each with the check that decides when::

    def k_max(x, mask, k):                                     # the reference: a right answer
        return KMaxPool(k)(x, mask)

    def elements(counts=(5, 4), k=2, filler=0.0):              # the inputs: a tuple of an answer's arguments;
        return *padded(counts, 5, 4, filler), k                # its defaults are the typical input

    KMAX = {                                                   # named after the key
        "Return one vector for each row of the batch, (B, D).": shape(),
        "Without padding: the mean of each ...": same({"k": 1}, {"k": 3}, counts=[5, 5]),
        "A zero from the padding came out on top: ...": same(),
        NO_GRADIENT: gradient(),
        "You divided by k, also where there are fewer elements.": like(divided_by_k, counts=[5, 1]),
        "You took the minimum.": lambda x, mask, k: k_max(-x, mask, k),
        "Right. This is equation 3.": passed,
    }

    EXERCISES = {
        "10.kmax": code("k-max under a mask", 12, KMAX, k_max, elements),
        "10.break": break_it("Break it", 8, BREAK),
        "10.double": predict("Every cell twice", 3, "mean", "5-max", "AdPool", "GPO"),
        "10.explore": explore("A balance by hand", 20),
    }

**Trials** come easiest first; each is worth a point. An answer must do what the reference does: return the
`same`, or something of the same `shape`, or pass on the same `gradient`. The keywords of a trial go to the
function that makes inputs, which is called anew for each call of an answer, since an answer may write into
its arguments; a trial on several inputs has a dictionary for each. `by=` compares something computed from the
result: `same(by=lambda A: A.sum(1))` says "the shares add up to one" before the shares themselves are
compared. For answers that are values there are `equals` and `between`; for everything else there is
`holds(lambda answer: ...)`, but write such a predicate only where no input makes the same point.

**Known mistakes** stand in the table as wrong answers, functions or values. An answer makes the mistake if it
returns the same on the typical input. `like` says more: several wrong answers, or another input, as in
`like(wrong, counts=[6])`. Where many wrong functions make one mistake, say what they have in common:
`like(wrong, right_on={"scale": 1}, wrong_on={"scale": 1000})`, or `like(wrong, when=lambda answer: ...)`.
Whichever trial failed, the learner gets the hint of the first mistake that fits.

**Tests** make sure that the reference gets all points, that each known mistake fails and gets its hint, and
that each trial is the first that some wrong answer fails. They make that answer themselves: another number,
or the reference's result, damaged on this trial's inputs. Where that will not do, give a trial `wrong=[...]`:
answers that pass the trials before it and fail this one.

Four things to keep in mind. Two equal hints in one table are one entry. `gradient` compares with the
reference's gradient: say `exact=False` where right answers may have another one (if the reference also
normalises, for example). Integers, lists and arrays are brought into the form of the `solution`, or of what
the reference returns, so a predicate gets a tensor where that is one. Learners see points, keys, hints and
messages: do not change them without need.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from course.checks.comparing import equals, holds, like, passed
from course.checks.exercise import Check, Exercise, ExerciseKind, Trial

Table = Mapping[str, Any]
"""Checks, or wrong answers, by what an answer gets that fails the check, or is like the wrong one."""

AUTOGRAD = ("grad", "backward", "jacobian", "jacrev", "jacfwd")
_PRODUCT = "scaled_dot_product_attention"
ATTENTION = ("MultiheadAttention", "multi_head_attention_forward", _PRODUCT, f"_{_PRODUCT}_math")
"""Names of torch's that do the work of an exercise in a gradient by hand, and in attention."""

_STAY = "stay with torch's operations, without .item(), detach or numpy."
NO_GRADIENT = f"No gradient arrives: {_STAY}"

NOTED = "Noted. The next cells show whether you were right."
"""The message for a prediction: the cell below it shows whether it was right."""


def no_gradient_at(what: str) -> str:
    """The hint where a gradient at something is missing or wrong."""
    return f"No gradient, or a wrong one, arrives at {what}: {_STAY}"


def exercise(
    kind: ExerciseKind,
    title: str,
    minutes: int,
    table: Table,
    reference: Callable[..., Any] | None = None,
    inputs: Callable[..., Any] | None = None,
    **rest: Any,
) -> Exercise:
    """An exercise of a table, and its settings (see `Exercise`).

    A right answer is the `reference`, the value of the last `equals`, or the `solution`.
    """
    trials: list[Trial] = []
    mistakes: list[Trial] = []
    for said, check in table.items():
        if check is passed:
            rest = {"message": said} | rest
        elif isinstance(check, Check) and not isinstance(check, like):
            trials.append(Trial(check, said))
        else:
            mistakes.append(Trial(check if isinstance(check, like) else like(check), said))
        if isinstance(check, equals):
            rest = {"solution": check.value} | rest
    made = {"reference": reference, "inputs": inputs, **rest}
    return Exercise(title, kind, minutes, tuple(trials), tuple(mistakes), **made)


code = partial(exercise, "code")
"""An exercise in writing a function, or in finding something with code."""

compute = partial(exercise, "compute")
"""An exercise in working out a number, or several."""

break_it = partial(exercise, "break")
"""An exercise in breaking something."""


def _bare(answer: str | float) -> str:
    """An option as it is compared: in small letters, without blanks, brackets, and the comma of 1,560."""
    return str(answer).strip(" ().").replace(",", "").replace(" ", "").lower()


def predict(title: str, minutes: int, *options: str, **rest: Any) -> Exercise:
    """A prediction, before a cell is run: any of the options counts, in whatever case."""
    known, quoted = {_bare(option) for option in options}, (f'"{option}"' for option in options)
    one_of = holds(
        lambda answer: isinstance(answer, str | int | float) and _bare(answer) in known,
        wrong=["none of these", -1, list(options), ""],
    )
    table = {f"Answer {' or '.join(quoted)}.": one_of}
    settings = {"difficulty": "easy", "message": NOTED, "solution": options[0]}
    return exercise("predict", title, minutes, table, **settings | rest)


EXPLORED = {
    "Two texts are wanted: what you expect, and what you found.": holds(
        lambda answer: isinstance(answer, tuple | list) and list(map(type, answer)) == [str, str],
        wrong=[3, (1, 2), "It gets worse.", ("It will go up a bit",)],
    ),
    "Say what you expect, before you run it, and why. Use at least three words.": holds(
        lambda answer: len(answer[0].split()) >= 3,
        wrong=[("yes", "it went up early"), ("", "it did get worse")],
    ),
    "Say what came out of it. Use at least three words, and not those of your expectation.": holds(
        lambda answer: len(answer[1].split()) >= 3 and answer[0] != answer[1],
        wrong=[("it will go up", "up"), ("it will go up", "it will go up")],
    ),
}


def explore(title: str, minutes: int, **rest: Any) -> Exercise:
    """An experiment of the learner's own: an expectation and a finding, which a person reads."""
    settings = {"message": "Noted.", "solution": ("I expect no change.", "It was a little better.")}
    return exercise("explore", title, minutes, EXPLORED, **settings | rest)
