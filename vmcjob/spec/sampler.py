"""Sampling in a spec: the keys of `[sampler]`."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from vmcjob.document import Before, above, between, inside
from vmcjob.spec.evaluate import MAX_STEPS

MAX_WALKERS: Final = 1_000_000


@dataclass(frozen=True)
class Sampler:
    """Metropolis sampling of the walkers."""

    walkers: Annotated[int, between(2, MAX_WALKERS), "in all, shared by the devices"] = 512
    steps: Annotated[int, between(1, MAX_STEPS), "Metropolis moves between two updates"] = 10
    proposal: Annotated[
        Literal["plain", "scaled"],
        "whether electrons move alike, or in proportion to their distance from the nuclei",
        Before("plain"),
    ] = "scaled"
    jumps: Annotated[
        bool | None,
        "whether an electron may jump to another nucleus; yes if it is alone, its nuclei far apart",
        Before(False),
    ] = None
    width: Annotated[float, above(0), "spread of the first moves, bohr or relative"] = 0.3
    target_acceptance: Annotated[float, inside(0, 1), "to which training tunes the width"] = 0.525
    warmup: Annotated[int, between(0, MAX_STEPS), "times `steps` moves before training"] = 100


DEFAULT_SAMPLER: Final = Sampler()
