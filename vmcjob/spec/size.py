"""The size of a job: its parameters, and estimates of memory and disk space.

Closed formulas, because JAX is not available where jobs are planned. A test compares them with
flax.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vmcjob.columns import OBSERVABLES
from vmcjob.spec.ansatz import Ansatz, FermiNet, Psiformer, SlaterJastrow
from vmcjob.spec.optimizer import Adam, Kfac, Lamb, MinSr, Optimizer, Spring, Sr

if TYPE_CHECKING:
    from vmcjob.spec.model import JobSpec
    from vmcjob.spec.system import System

DEVICE_BYTES: Final = 2**40
"""More memory than any single device has."""
SLOTS: Final = 2
"""Number of checkpoints in a store."""
ROW_BYTES: Final = 8
"""Bytes of one number of a series, or of its step."""
TRAIN_COLUMNS: Final = 14
EVALUATE_COLUMNS: Final = 8
"""Columns of every store, steps included; tests compare these and the next with the store's."""
MORE_COLUMNS: Final[Mapping[str, int]] = {"sr": 1, "minsr": 4, "spring": 4, "kfac": 1}
"""Further columns of training, by kind of the optimizer."""
FACTORS: Final = 3
"""Size of the two factors of a dense layer in K-FAC, relative to its parameters (about)."""
MAX_FILES: Final = 300
"""More files than any finished run has."""
DESCRIPTION_BYTES: Final = 2**15
"""Bytes of the JSON of a store (about), of any run; most of the store of a tiny run."""
OCCUPIED: Final = (1, 2, 5, 6, 9, 10, 15)
"""States of one spin up to 1s, 2s, 2p, 3s, 3p, 4s, 3d; higher states count as 3d."""


MAX_RESPONDING: Final = 1024
"""Walkers to which the response of the parameters is fitted, at most (`vmc.response`)."""


@dataclass(frozen=True)
class Size:
    """The size of one run."""

    parameters: int
    memory_bytes: int  # minimum for all devices: parameters, scores and their products
    store_bytes: int  # estimate for all steps: series, snapshots, both checkpoints


def measure(spec: "JobSpec") -> Size:
    """The size of a job."""
    number = 8 if spec.numerics.dtype == "float64" else 4
    n_walkers, optimizer = spec.sampler.walkers, spec.optimizer
    n_parameters = count_parameters(spec.ansatz, spec.system)
    walkers = n_walkers * spec.system.n_electrons * 3 * number
    n_responses = _count_responses(spec)
    memory = n_parameters * number * (1 + n_responses) + walkers
    n_scores = n_walkers if spec.train.steps and _has_scores(optimizer) else 0
    n_gram = 0 if isinstance(optimizer, Sr) else n_scores
    if n_responses and spec.evaluate.warmup and spec.evaluate.steps:
        n_fit = min(n_walkers, MAX_RESPONDING)
        n_scores, n_gram = max(n_scores, n_fit), max(n_gram, n_fit)
    memory += (n_scores * n_parameters + n_gram**2) * number
    is_averaged = spec.train.steps > 0 and spec.evaluate.parameters != "last"
    n_vectors = 1 + _memories(optimizer) + is_averaged + n_responses
    checkpoint = n_parameters * number * n_vectors + walkers
    snapshots = min(spec.output.snapshots, spec.evaluate.steps)
    store = SLOTS * checkpoint + snapshots * walkers + _count_series(spec) * ROW_BYTES
    return Size(n_parameters, memory, store + DESCRIPTION_BYTES)


def count_parameters(ansatz: Ansatz, system: "System") -> int:
    """Number of trained parameters; approximate for a Slater–Jastrow function of ions."""
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
    """Whether the optimizer keeps the scores of all walkers as a matrix."""
    is_dense = isinstance(optimizer, Sr) and optimizer.scores == "dense"
    return is_dense or isinstance(optimizer, MinSr | Spring)


def _count_responses(spec: "JobSpec") -> int:
    """Changes of the wave function to which parameters respond: by each nucleus along each axis."""
    return 3 * len(spec.system.atoms) if "forces" in spec.evaluate.observables else 0


def _memories(optimizer: Optimizer) -> int:
    """Size of the optimizer's state in a checkpoint, in vectors of parameters."""
    match optimizer:
        case Adam() | Lamb():
            return 2
        case Kfac():  # with inverses of the factors, if they are kept
            return 1 + FACTORS * (1 if optimizer.inverse_period == 1 else 2)
        case Spring():
            return 1
        case _:
            return 0


def _count_series(spec: "JobSpec") -> int:
    """Number of values in all rows of training, evaluation and observables."""
    evaluate = spec.evaluate
    n_nuclei = len(spec.system.atoms)
    observed = sum(OBSERVABLES[name].numbers(n_nuclei) for name in evaluate.observables)
    n_observed = evaluate.steps // evaluate.observe_every * (observed + 1) if observed else 0
    n_train = spec.train.steps * (TRAIN_COLUMNS + MORE_COLUMNS.get(spec.optimizer.kind, 0))
    return n_train + evaluate.steps * EVALUATE_COLUMNS + n_observed


def _spins(system: "System") -> list[int]:
    """Numbers of electrons of each spin, without zeros."""
    return [n for n in (system.n_up, system.n_down) if n]


def _columns(is_full: bool, system: "System") -> Iterator[int]:
    """For each spin, the number of orbitals in a determinant."""
    for n in _spins(system):
        yield system.n_electrons if is_full else n


def _count_orbitals(width: int, ansatz: FermiNet | Psiformer, system: "System") -> int:
    """For each orbital: parameters of one affine map, two per nucleus, and one per hole."""
    n_orbitals = ansatz.determinants * sum(_columns(ansatz.full_determinants, system))
    n_holes = sum(core is not None for core in system.cores) if ansatz.core_holes else 0
    return n_orbitals * (width + 1 + 2 * len(system.atoms) + n_holes)


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
    """Parameters of radial functions, coefficients of atomic functions, and polynomials."""
    share = system.n_up / sum(system.charges)
    nuclei = zip(system.elements, system.charges, strict=True)
    momenta = [
        l
        for element, charge in nuclei
        for l in _momenta(charge, share, element - charge)  # noqa: E741
    ]
    n_radials = ansatz.functions * len(momenta)
    n_functions = ansatz.functions * sum(2 * l + 1 for l in momenta)  # noqa: E741
    n_columns = sum(_columns(ansatz.full_determinants, system))
    powers, n_nuclei = ansatz.jastrow_order - 1, len(system.atoms)
    three_body = n_nuclei * powers * (powers + 1) * 2 * (powers + 1)
    factor = 2 + (2 + n_nuclei * powers + 2 * powers + three_body if powers else 0)
    return n_radials + n_functions * ansatz.determinants * n_columns + factor


def _momenta(charge: int, share: float, n_core: int = 0) -> list[int]:
    """Angular momenta of the subshells of a nucleus: occupied ones, and one more.

    Subshells inside a core of `n_core` electrons are left out.
    """
    if n_core:
        return _valence_momenta(max((charge + 1) // 2, math.ceil(charge * share - 1e-9)), n_core)
    n_states = max((charge + 1) // 2, math.ceil(charge * share - 1e-9))
    order: tuple[int, ...] = (0, 0, 1, 0, 1, 0, 2)
    n_shells = next((i for i, n in enumerate(OCCUPIED, start=1) if n >= n_states), len(OCCUPIED))
    occupied: list[int] = list(order[:n_shells])
    return [*occupied, max(occupied) + 1] if max(occupied) < 2 else occupied


def _valence_momenta(n_states: int, n_core: int) -> list[int]:
    """Angular momenta of the subshells outside a core that hold so many states, and one more."""
    shells = sorted((n + l, n, l) for n in range(1, 9) for l in range(min(n, 3)))  # noqa: E741
    inside: set[tuple[int, int]] = set()
    for own in ((n, l) for n in range(1, 9) for l in range(n)):  # noqa: E741
        n_core -= 2 * (2 * own[1] + 1)
        if n_core < 0:
            break
        inside.add(own)
    found: list[int] = []
    for _, n, l in shells:  # noqa: E741
        if (n, l) not in inside and sum(2 * k + 1 for k in found) < n_states:
            found.append(l)
    return [*found, max(found) + 1] if max(found) < 2 else found
