"""Pretraining in a spec: the Hartree–Fock solution to which the network is fitted before VMC."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from vmcjob.document import Before, Rule, above, between, one_of
from vmcjob.spec.basis import AUTO, BASIS_SETS, choose
from vmcjob.spec.evaluate import MAX_STEPS
from vmcjob.spec.system import System

PRETRAIN_STEPS: Final = 1000
HALF_PROJECTED: Final = "half-projected"
BY_START: Final = -1
"""Means PRETRAIN_STEPS, or 0 for a run that starts from another."""


def _is_space(values: Sequence[int]) -> bool:
    return not values or (len(values) == 2 and min(values) > 0)


@dataclass(frozen=True)
class Pretrain:
    """Fit of the ansatz's orbitals to Hartree–Fock orbitals, before VMC."""

    steps: Annotated[int, between(0, MAX_STEPS), "updates; 1000, or none with start_from"] = (
        BY_START
    )
    basis: Annotated[
        str,
        one_of(BASIS_SETS, "the name of a basis set"),
        "auto: cc-pvdz, or aug-cc-pvdz for anions and two or more unpaired electrons; with core "
        "potentials ccecp-ccpvdz, and for nuclei without one its counterpart cc-pvdz",
    ] = AUTO
    method: Annotated[
        Literal["half-projected", "stable", "auto", "rhf", "uhf", "rohf"],
        "auto: rhf for closed shells, else uhf; stable: as auto, or what is stable and lower; "
        "half-projected: as stable, and both spin partners where a closed shell becomes uhf",
    ] = HALF_PROJECTED
    active_space: Annotated[
        tuple[int, ...],
        Rule("{} of electrons and orbitals, like [4, 4]", _is_space, schema=(("maxItems", 2),)),
        "electrons and orbitals of CASSCF; its determinants, not one, are then fitted",
        Before(()),
    ] = ()
    optimizer: Annotated[Literal["adam", "lamb"], "of the fit"] = "adam"
    learning_rate: Annotated[float, above(0), "of the first step, falling to 0 as a cosine"] = 5e-3


DEFAULT_PRETRAIN: Final = Pretrain()


def settled(pretrain: Pretrain, system: System) -> Pretrain:
    """The start with values for the defaults that depend on the system: basis and method."""
    if pretrain.basis == AUTO:
        is_diffuse = system.charge < 0 or system.spin >= 2
        pretrain = replace(pretrain, basis=choose(system.needs, is_diffuse))
    has_partners = system.n_up == system.n_down and pretrain.steps and not pretrain.active_space
    if pretrain.method == HALF_PROJECTED and not has_partners:
        # The numbers are those of "stable", and so the run's id is.
        pretrain = replace(pretrain, method="stable")
    return pretrain
