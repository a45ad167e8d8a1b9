"""The families of wave functions that a spec may choose from, each with its own keys."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from vmcjob.document import Before, between

MAX_FEATURES: Final = 10_000
"""Of whatever a network has many of; its matrices have as many rows and columns."""


Determinants = Annotated[int, between(1, MAX_FEATURES), "determinants, summed"]
FullDeterminants = Annotated[
    bool, "whether a determinant holds all electrons, or those of one spin"
]
Layers = Annotated[int, between(1, 1000), "layers of the network"]
SpinSymmetric = Annotated[
    bool,
    "whether the function with both spins exchanged is added: even total spins, twice the cost",
    Before(False),
]
CoreHoles = Annotated[
    bool | None,
    "whether orbitals begin with the holes that core potentials make; by default they do",
    Before(False),
]
Jastrow = Annotated[bool, "whether a factor sees to the electron-electron cusps"]


@dataclass(frozen=True)
class FermiNet:
    """Orbitals from streams of electrons and of pairs."""

    kind: Annotated[Literal["ferminet"], "streams of electrons and of pairs"] = "ferminet"
    determinants: Determinants = 4
    full_determinants: FullDeterminants = True
    spin_symmetric: SpinSymmetric = False
    layers: Layers = 2
    one_electron_width: Annotated[int, between(1, MAX_FEATURES), "features of an electron"] = 32
    two_electron_width: Annotated[int, between(1, MAX_FEATURES), "features of a pair"] = 8
    core_holes: CoreHoles = None
    rescale_inputs: Annotated[
        bool,
        "whether distances d enter the network as log(1 + d), and vectors x as x log(1 + d)/d",
        Before(False),
    ] = False
    jastrow: Jastrow = True


@dataclass(frozen=True)
class Psiformer:
    """Orbitals from electrons that attend to each other."""

    kind: Annotated[Literal["psiformer"], "self-attention among electrons"] = "psiformer"
    determinants: Determinants = 4
    full_determinants: FullDeterminants = True
    spin_symmetric: SpinSymmetric = False
    layers: Layers = 2
    heads: Annotated[int, between(1, 1000), "heads of attention in each layer"] = 4
    head_width: Annotated[int, between(1, MAX_FEATURES), "features of an electron per head"] = 8
    mlp_width: Annotated[int, between(1, MAX_FEATURES), "hidden features after attention"] = 32
    layer_norm: Annotated[bool, "whether features are normalized in each layer"] = False
    core_holes: CoreHoles = None
    jastrow: Jastrow = True


@dataclass(frozen=True)
class SlaterJastrow:
    """Orbitals of atomic functions, and a factor of all cusps and correlations near nuclei."""

    kind: Annotated[Literal["slater-jastrow"], "no network: the classical baseline"] = (
        "slater-jastrow"
    )
    determinants: Determinants = 1
    full_determinants: FullDeterminants = False
    spin_symmetric: SpinSymmetric = False
    functions: Annotated[int, between(1, 10), "exponents of each atomic subshell"] = 2
    jastrow_order: Annotated[
        int, between(1, 10), "highest power of a scaled distance; 1: the cusps alone"
    ] = 3


Ansatz: TypeAlias = FermiNet | Psiformer | SlaterJastrow
"""The key `kind` of a spec chooses."""

DEFAULT_ANSATZ: Final = FermiNet()
