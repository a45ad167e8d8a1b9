"""How large a job is: its parameters, and the least that it needs of memory and of a disk.

Closed formulas, for who plans a job has no JAX at hand; a test holds them against flax.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vmcjob.spec.ansatz import Ansatz, FermiNet, Psiformer, SlaterJastrow
from vmcjob.spec.optimizer import Adam, Kfac, Lamb, MinSr, Optimizer, Spring, Sr

if TYPE_CHECKING:
    from vmcjob.spec.model import JobSpec
    from vmcjob.spec.system import System

DEVICE_BYTES: Final = 2**40
"""Memory that no single device has, by some factor, for years to come."""
SLOTS: Final = 2
"""Checkpoints that a store keeps."""
OCCUPIED: Final = (1, 2, 5, 6, 9, 10, 15)
"""States of one spin in 1s, 2s, 2p, 3s, 3p, 4s, 3d, up to each: later ones are taken for 3d's."""


@dataclass(frozen=True)
class Size:
    """Of one run; bytes are the least that is possible, of all devices together."""

    parameters: int
    memory_bytes: int  # parameters, and the scores and their products where there are any
    store_bytes: int  # both checkpoints, and the snapshots


def measure(spec: "JobSpec") -> Size:
    """The size of a job."""
    number = 8 if spec.numerics.dtype == "float64" else 4
    n_walkers, optimizer = spec.sampler.walkers, spec.optimizer
    n_parameters = count_parameters(spec.ansatz, spec.system)
    walkers = n_walkers * spec.system.n_electrons * 3 * number
    memory = n_parameters * number + walkers
    if spec.train.steps and _has_scores(optimizer):
        memory += n_walkers * n_parameters * number
        memory += n_walkers**2 * number if not isinstance(optimizer, Sr) else 0
    checkpoint = n_parameters * number * (1 + _memories(optimizer)) + walkers
    snapshots = min(spec.output.snapshots, spec.evaluate.steps)
    return Size(n_parameters, memory, SLOTS * checkpoint + snapshots * walkers)


def count_parameters(ansatz: Ansatz, system: "System") -> int:
    """Numbers that training moves; of a Slater–Jastrow function, where atoms are ions, about."""
    match ansatz:
        case FermiNet():
            return _count_ferminet(ansatz, system) + (2 if ansatz.jastrow else 0)
        case Psiformer():
            return _count_psiformer(ansatz, system) + (2 if ansatz.jastrow else 0)
        case SlaterJastrow():
            return _count_slater(ansatz, system)


def format_bytes(n_bytes: float) -> str:
    """An amount of memory in its largest unit: 512 B, 3.4 MiB."""
    if n_bytes < 1024:
        return f"{n_bytes:.0f} B"
    power = min(int(math.log(n_bytes, 1024)), 8)
    return f"{n_bytes / 1024**power:.3g} {' KMGTPEZY'[power]}iB"


def _has_scores(optimizer: Optimizer) -> bool:
    """Whether it keeps the scores of all walkers as a matrix."""
    is_dense = isinstance(optimizer, Sr) and optimizer.scores == "dense"
    return is_dense or isinstance(optimizer, MinSr | Spring)


def _memories(optimizer: Optimizer) -> int:
    """Vectors of parameters that it remembers, and that a checkpoint holds."""
    if isinstance(optimizer, Adam | Lamb):
        return 2
    return 1 if isinstance(optimizer, Spring | Kfac) else 0


def _spins(system: "System") -> list[int]:
    """Electrons of each spin that has any."""
    return [n for n in (system.n_up, system.n_down) if n]


def _columns(is_full: bool, system: "System") -> Iterator[int]:
    """For each spin, orbitals in a determinant."""
    for n in _spins(system):
        yield system.n_electrons if is_full else n


def _count_orbitals(width: int, ansatz: FermiNet | Psiformer, system: "System") -> int:
    """An affine map of the features, and two numbers of each nucleus, for every orbital."""
    n_orbitals = ansatz.determinants * sum(_columns(ansatz.full_determinants, system))
    return n_orbitals * (width + 1 + 2 * len(system.atoms))


def _count_ferminet(ansatz: FermiNet, system: "System") -> int:
    one, two, n_spins = 4 * len(system.atoms), 4, len(_spins(system))
    total = 0
    for layer in range(ansatz.layers):
        total += ansatz.one_electron_width * (one + n_spins * two + 1 + n_spins * one)
        if layer < ansatz.layers - 1:
            total += ansatz.two_electron_width * (two + 1)
            two = ansatz.two_electron_width
        one = ansatz.one_electron_width
    return total + _count_orbitals(one, ansatz, system)


def _count_psiformer(ansatz: Psiformer, system: "System") -> int:
    width, hidden = ansatz.heads * ansatz.head_width, ansatz.mlp_width
    attention = 4 * width**2
    perceptron = (width + 1) * hidden + (hidden + 1) * width
    norms = 4 * width if ansatz.layer_norm else 0
    features = 4 * len(system.atoms) + 1
    layers = ansatz.layers * (attention + perceptron + norms)
    return features * width + layers + _count_orbitals(width, ansatz, system)


def _count_slater(ansatz: SlaterJastrow, system: "System") -> int:
    """Radial functions, coefficients of atomic functions, and the factor's polynomials."""
    share = system.n_up / sum(system.charges)
    momenta = [l for charge in system.charges for l in _momenta(charge, share)]  # noqa: E741
    n_radials = ansatz.functions * len(momenta)
    n_functions = ansatz.functions * sum(2 * l + 1 for l in momenta)  # noqa: E741
    n_columns = sum(_columns(ansatz.full_determinants, system))
    powers, n_nuclei = ansatz.jastrow_order - 1, len(system.atoms)
    three_body = n_nuclei * powers * (powers + 1) * 2 * (powers + 1)
    factor = 2 + (2 + n_nuclei * powers + 2 * powers + three_body if powers else 0)
    return n_radials + n_functions * ansatz.determinants * n_columns + factor


def _momenta(charge: int, share: float) -> list[int]:
    """Angular momenta of the subshells around a nucleus: those with electrons, and one more."""
    n_states = max((charge + 1) // 2, math.ceil(charge * share - 1e-9))
    order: tuple[int, ...] = (0, 0, 1, 0, 1, 0, 2)
    n_shells = next((i for i, n in enumerate(OCCUPIED, start=1) if n >= n_states), len(OCCUPIED))
    occupied: list[int] = list(order[:n_shells])
    return [*occupied, max(occupied) + 1] if max(occupied) < 2 else occupied
