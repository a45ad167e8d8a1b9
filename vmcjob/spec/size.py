"""How large a job is: its parameters, and the least that it needs of memory and of a disk.

Closed formulas, for who plans a job has no JAX at hand; a test holds them against flax.
"""

import math
from collections.abc import Iterator, Mapping
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
ROW_BYTES: Final = 8
"""Of one number of a series, or of its step."""
TRAIN_COLUMNS: Final = 14
EVALUATE_COLUMNS: Final = 8
"""Of every store, with the steps themselves; tests hold these and the next against the store's."""
MORE_COLUMNS: Final[Mapping[str, int]] = {"sr": 1, "minsr": 4, "spring": 4, "kfac": 1}
"""Of training, by the kind of its optimizer."""
OBSERVED_COLUMNS: Final[Mapping[str, int]] = {
    "components": 8,
    "dipole": 18,
    "quadrupole": 9,
    "r2": 5,
    "spin": 1,
    "density": 203,
    "pairs": 203,
}
"""Numbers of one measurement, by the name of the observable."""
FACTORS: Final = 3
"""About so many times its parameters are the two factors that K-FAC has of each dense layer."""
DESCRIPTION_BYTES: Final = 2**15
"""About what the JSON of a store takes, whatever it holds: nearly all of a tiny run."""
OCCUPIED: Final = (1, 2, 5, 6, 9, 10, 15)
"""States of one spin in 1s, 2s, 2p, 3s, 3p, 4s, 3d, up to each: later ones are taken for 3d's."""


@dataclass(frozen=True)
class Size:
    """Of one run."""

    parameters: int
    memory_bytes: int  # at least, of all devices: parameters, and scores and their products
    store_bytes: int  # about, of all steps: the series, the snapshots, both checkpoints


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
    is_averaged = spec.train.steps > 0 and spec.evaluate.parameters != "last"
    checkpoint = n_parameters * number * (1 + _memories(optimizer) + is_averaged) + walkers
    snapshots = min(spec.output.snapshots, spec.evaluate.steps)
    store = SLOTS * checkpoint + snapshots * walkers + _count_series(spec) * ROW_BYTES
    return Size(n_parameters, memory, store + DESCRIPTION_BYTES)


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
    amount = n_bytes / 1024**power
    return f"{amount:.{3 if amount < 999.5 else 4}g} {' KMGTPEZY'[power]}iB"


def _has_scores(optimizer: Optimizer) -> bool:
    """Whether it keeps the scores of all walkers as a matrix."""
    is_dense = isinstance(optimizer, Sr) and optimizer.scores == "dense"
    return is_dense or isinstance(optimizer, MinSr | Spring)


def _memories(optimizer: Optimizer) -> int:
    """Vectors of parameters that it remembers, or as much, and that a checkpoint holds."""
    match optimizer:
        case Adam() | Lamb():
            return 2
        case Kfac():  # with inverses of the factors, where these are kept
            return 1 + FACTORS * (1 if optimizer.inverse_period == 1 else 2)
        case Spring():
            return 1
        case _:
            return 0


def _count_series(spec: "JobSpec") -> int:
    """Numbers of all rows of training, of evaluation, and of what is measured now and then."""
    evaluate = spec.evaluate
    observed = sum(OBSERVED_COLUMNS[name] for name in evaluate.observables)
    n_observed = evaluate.steps // evaluate.observe_every * (observed + 1) if observed else 0
    n_train = spec.train.steps * (TRAIN_COLUMNS + MORE_COLUMNS.get(spec.optimizer.kind, 0))
    return n_train + evaluate.steps * EVALUATE_COLUMNS + n_observed


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
