"""The families of wave functions that a spec may choose from, each with its own keys."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from vmcjob.document import between

MOST_FEATURES: Final = 10_000
"""Of whatever a network has many of; its matrices have as many rows and columns."""


@dataclass(frozen=True)
class FermiNet:
    """Orbitals from streams of electrons and of pairs."""

    kind: Annotated[Literal["ferminet"], "family of wave functions"] = "ferminet"
    determinants: Annotated[int, between(1, MOST_FEATURES), "determinants, summed"] = 4
    full_determinants: Annotated[
        bool, "whether a determinant holds all electrons, or those of one spin"
    ] = True
    layers: Annotated[int, between(1, 1000), "layers of the network"] = 2
    one_electron_width: Annotated[int, between(1, MOST_FEATURES), "features of an electron"] = 32
    two_electron_width: Annotated[int, between(1, MOST_FEATURES), "features of a pair"] = 8
    jastrow: Annotated[bool, "whether a factor sees to the electron-electron cusps"] = True


Ansatz: TypeAlias = FermiNet
"""A union of dataclasses; the key `kind` of a spec chooses."""

DEFAULT_ANSATZ: Final = FermiNet()
