"""Orbitals of Hartree–Fock, or of CASSCF, from pyscf, as functions that JAX can evaluate."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from vmcjob.vmc.ansatz.determinants import Stacks
from vmcjob.vmc.basis import make_basis
from vmcjob.vmc.casscf import ActiveSpace, expand
from vmcjob.vmc.contracts import Nuclei
from vmcjob.vmc.nucleus import Core
from vmcjob.vmc.stability import Solver, broken_symmetry, descended
from vmcjob.vmc.system import System

if TYPE_CHECKING:
    from pyscf.gto import Mole

FIRST_WITH_POTENTIAL = 37  # rubidium: from there on def2 leaves the core to a potential
MAX_POWER = 6  # of pyscf's terms c r^(n - 2) exp(-a r^2)
Method = Literal["rhf", "uhf", "rohf"]
Wanted = Literal["half-projected", "stable", "auto"] | Method
BasisName = str | Mapping[int, str]
"""One of pyscf's basis sets, or one by number of each element."""


class HartreeFockError(Exception):
    """There is no Hartree–Fock solution to be had, and why."""


@dataclass(frozen=True)
class HartreeFock:
    """Determinants of each spin: their energy, and their orbitals as coefficients of a basis.

    Several determinants, of CASSCF or of a half-projected solution, have one axis more. Their
    orbitals contain the coefficients of the determinants.
    """

    energy: float  # of the lowest determinant that was found, hartree
    is_converged: bool
    method: Method  # of that determinant
    basis: BasisName
    up: Float[np.ndarray, "*det basis n_up"]
    down: Float[np.ndarray, "*det basis n_down"]
    casscf_energy: float | None = None  # hartree, of several determinants


def solve(
    system: System,
    basis: BasisName,
    wanted: Wanted = "stable",
    space: ActiveSpace | None = None,
    n_determinants: int = 1,
) -> HartreeFock:
    """The Hartree–Fock ground state, or with an active space `n_determinants` of CASSCF.

    - "auto" is restricted for closed shells, else unrestricted.
    - "stable" is the same, or the minimum below if that solution is none.
    - "half-projected" is as "stable", but a closed shell that becomes unrestricted has two
      determinants (`_both_partners`). If only one is asked for, its orbitals are restricted.

    CASSCF begins with restricted orbitals. Where plain iteration does not converge, second-order
    iteration goes on from there.
    Raises HartreeFockError if the basis does not know an element, leaves its core to a potential,
    or has fewer functions than there are electrons of a spin, or orbitals in use.
    """
    from pyscf import scf

    scf.hf.MUTE_CHKFILE = True  # each solver would open a temporary file, and leave it open
    bare = [one.element for one in system.species if one.core is None]
    if "def2" in str(basis) and max(bare, default=0) >= FIRST_WITH_POTENTIAL:
        raise HartreeFockError(f"basis {basis} has no functions for the cores of heavy atoms")
    molecule = molecule_of(system, basis)
    _require_functions(molecule.nao, basis, system, space)
    open_shell = "rohf" if space else "uhf"
    usual = "rhf" if system.n_up == system.n_down else open_shell
    method: Method = usual if wanted in ("half-projected", "stable", "auto") else wanted
    with _one_thread():
        solver: Solver = {"rhf": scf.RHF, "uhf": scf.UHF, "rohf": scf.ROHF}[method](molecule)
        solver.kernel()
        if not solver.converged:
            solver = solver.newton()
            solver.kernel()
        if space:
            return _several(solver, system, space, n_determinants, method, basis)
        usually = solver
        if wanted in ("half-projected", "stable"):
            solver, method = _minimum(solver, system, method)
    up, down = _occupied(solver, system)
    if wanted == "half-projected" and method != usual:
        several = n_determinants > 1
        up, down = _both_partners(up, down) if several else _occupied(usually, system)
    return HartreeFock(float(solver.e_tot), bool(solver.converged), method, basis, up, down)


def _minimum(solver: Solver, system: System, method: Method) -> tuple[Solver, Method]:
    """A stable solution and its method: the given one, or what is below it."""
    if method == "uhf":
        return descended(solver, solver.make_rdm1()), method
    lower = broken_symmetry(solver, system)
    return (solver, method) if lower is None else (lower, "uhf")


def _occupied(solver: Solver, system: System) -> tuple[np.ndarray, np.ndarray]:
    """The occupied orbitals of either spin, each of shape (basis, electrons of that spin)."""
    found = np.asarray(solver.mo_coeff)
    up, down = found if found.ndim == 3 else (found, found)
    return up[:, : system.n_up], down[:, : system.n_down]


def _both_partners(up: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half-projected Hartree–Fock: D(φα; φβ) + D(φβ; φα), two determinants of each spin.

    Their sum has parts of even total spin only, since ψ(r↓; r↑) = (−1)^S ψ(r↑; r↓). One broken pair
    is then a singlet.
    """
    return np.array([up, down]), np.array([down, up])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several add up in whatever order they end, so that a second attempt has other last bits.

    On a busy machine they mostly wait for one another, at full speed.
    """
    from pyscf import lib

    with lib.with_omp_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pyscf of its own functions
        yield


def _require_functions(n: int, basis: BasisName, system: System, space: ActiveSpace | None) -> None:
    """HartreeFockError if a basis of n functions has too few."""
    if n < system.n_up:
        raise HartreeFockError(
            f"basis {basis} has {n} functions for {system.n_up} electrons of one spin"
        )
    if space and n < space.n_occupied(system):
        raise HartreeFockError(
            f"basis {basis} has {n} functions, and {space.n_occupied(system)} orbitals are in use"
        )


def _several(
    solver: Solver,
    system: System,
    space: ActiveSpace,
    n_most: int,
    method: Method,
    basis: BasisName,
) -> HartreeFock:
    """The determinants of CASSCF, from restricted orbitals."""
    found = expand(solver, system, space, n_most)
    return HartreeFock(
        energy=float(solver.e_tot),
        is_converged=bool(solver.converged) and found.is_converged,
        method=method,
        basis=basis,
        up=found.up,
        down=found.down,
        casscf_energy=found.energy,
    )


def populations(system: System, solution: HartreeFock) -> Float[np.ndarray, "2 nuc"]:
    """How many electrons of either spin are at each nucleus, by Mulliken; of several determinants,
    in the first.
    """
    molecule = molecule_of(system, solution.basis)
    overlap = molecule.intor("int1e_ovlp")
    slices = molecule.aoslice_by_atom()[:, 2:]
    counts = []
    for orbitals in (solution.up, solution.down):
        if orbitals.ndim == 3:  # whose columns are no longer of length 1
            size = solution.up[0][:, 0] @ overlap @ solution.up[0][:, 0]
            orbitals = orbitals[0] / np.sqrt(size)
        by_function = np.einsum("ai,ab,bi->a", orbitals, overlap, orbitals)
        counts.append([by_function[first:last].sum() for first, last in slices])
    return np.array(counts)


def molecule_of(system: System, basis: BasisName) -> "Mole":
    """The system as pyscf has it, with the potentials of its cores."""
    from pyscf import gto
    from pyscf.lib.exceptions import BasisNotFoundError

    species = system.species
    cores = {_symbol(one.element): _in_pyscf(one.core) for one in species if one.core}
    is_one = isinstance(basis, str)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on where else to look for a basis
            return gto.M(
                atom=[(one.element, one.position) for one in species],
                unit="Bohr",
                basis=basis if is_one else {_symbol(z): name for z, name in basis.items()},
                ecp=cores,
                charge=sum(system.charges) - system.n_electrons,
                spin=system.n_up - system.n_down,
                verbose=0,
            )
    except BasisNotFoundError as error:
        raise HartreeFockError(f"no basis {basis} for one of the elements: {error}") from None


def _symbol(element: int) -> str:
    from pyscf.data.elements import ELEMENTS

    return str(ELEMENTS[element])


def _in_pyscf(core: Core) -> list[Any]:
    """A core as pyscf has it: of each l, the terms by their powers; l = −1 is the local part."""
    channels = [(-1, core.local), *enumerate(core.channels)]
    return [
        core.electrons,
        [
            [
                momentum,
                [[[a, c] for n, a, c in radial if n == power] for power in range(MAX_POWER + 1)],
            ]
            for momentum, radial in channels
        ],
    ]


class Coefficients(NamedTuple):
    """Coefficients of the occupied orbitals of either spin, in a basis; arguments of programs."""

    up: Float[Array, "det basis n_up"]
    down: Float[Array, "det basis n_down"]

    @classmethod
    def of(cls, solution: HartreeFock, n_determinants: int = 1) -> "Coefficients":
        """Convert a solution to the process's precision, for an ansatz of so many determinants.

        A single determinant is the target of all. Several are shared out, in turns, until each
        determinant of the ansatz has one; those that share one share its weight.
        """
        spins = [np.asarray(spin, float) for spin in (solution.up, solution.down)]
        if spins[0].ndim == 2:
            return cls(*(jnp.asarray(spin[None], dtype=float) for spin in spins))
        turns = np.arange(n_determinants) % len(spins[0])
        up, down = (spin[turns] for spin in spins)
        up[:, :, 0] /= np.bincount(turns)[turns, None]
        return cls(jnp.asarray(up, dtype=float), jnp.asarray(down, dtype=float))


Orbitals = Callable[[Array, Nuclei, Coefficients], Stacks]
"""``(r, nuclei, coefficients) -> matrices of occupied orbitals`` of one walker."""


def make_orbitals(system: System, basis_name: BasisName, full_determinants: bool) -> Orbitals:
    """Occupied orbitals of one walker, their matrices shaped like those of an ansatz, or one each.

    Full determinants are zero where an electron meets orbitals of the other spin.
    """
    basis = make_basis(molecule_of(system, basis_name))
    n_up = system.n_up

    def orbitals(r: Array, nuclei: Nuclei, coefficients: Coefficients) -> Stacks:
        functions = basis(r, nuclei)
        up = functions[:n_up] @ coefficients.up
        down = functions[n_up:] @ coefficients.down
        if full_determinants:
            return (jax.vmap(jax.scipy.linalg.block_diag)(up, down),)
        return tuple(stack for stack in (up, down) if stack.shape[1])

    return orbitals
