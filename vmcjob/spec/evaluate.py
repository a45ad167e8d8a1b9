"""Evaluation in a spec: its length and its observables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from vmcjob.columns import OBSERVABLES
from vmcjob.document import Before, Clash, above, between, enumerate_words, one_of

MAX_STEPS: Final = 10_000_000
"""Longest series: a store keeps it in a dozen files, and a commit replaces one file per column."""

ObservableName = Annotated[
    str, one_of(OBSERVABLES, enumerate_words([f'"{name}"' for name in OBSERVABLES], "or"))
]
"""Names of observables."""


@dataclass(frozen=True)
class Evaluate:
    """The series behind the result, with frozen parameters and frozen width."""

    steps: Annotated[int, between(0, MAX_STEPS), "measurements of the energy"] = 1000
    warmup: Annotated[
        int,
        between(0, MAX_STEPS),
        "times `sampler.steps` moves before the first measurement; for forces, parameters are "
        "fitted meanwhile to follow the nuclei",
    ] = 100
    parameters: Annotated[
        Literal["best", "average", "last"],
        "of the last step, their average over the end of training, or the better of both",
        Before("last"),
    ] = "best"
    observables: Annotated[
        tuple[ObservableName, ...], "measured beside the energy, by name", Before(())
    ] = ()
    observe_every: Annotated[
        int,
        between(1, MAX_STEPS),
        "steps from one measurement of observables to the next",
        Before(10),
    ] = 10
    target_error: Annotated[
        float | None,
        above(0),
        "of the energy, hartree: ends the evaluation when reached, `steps` are then a ceiling",
        Before(None),
    ] = None

    target_of: Annotated[
        Literal["run", "pool"],
        "pool: target_error is that of all seeds together, each gets its part",
        Before("run"),
    ] = "run"

    def clashes(self) -> Iterator[Clash]:
        """Repeated or too rare observables; a target error that no step can reach."""
        if self.target_of == "pool" and self.target_error is None:
            yield Clash(("target_of",), "there is no target; expected target_error too")
        if self.target_error is not None and not self.steps:
            message = "steps is 0, so that there would be no energy; say how many there may be"
            yield Clash(("target_error", "steps"), message)
        for place, name in enumerate(self.observables):
            if name in self.observables[:place]:
                yield Clash(("observables",), f"{name} is there already", (place,))
        if self.observables and self.steps < self.observe_every:
            message = (
                f"in {self.steps} steps, observables that are measured every {self.observe_every} "
                "steps would never be; take more steps, or a smaller observe_every"
            )
            yield Clash(("observe_every", "steps", "observables"), message)


DEFAULT_EVALUATE: Final = Evaluate()
