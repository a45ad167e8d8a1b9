"""The Hessian of Hartree–Fock, by pyscf alone: no JAX, so that login nodes have it soon."""

import warnings
from typing import TYPE_CHECKING, Any, Final  # Any: pyscf has no types

import numpy as np
from jaxtyping import Float

from vmcjob.errors import RunDirError
from vmcjob.spec import JobSpec
from vmcjob.spec.basis import by_element

if TYPE_CHECKING:
    from pyscf.gto import Mole

STEP: Final = 0.01
"""Bohr, of central differences of gradients. The error is the third derivative times 1e-4."""


def hartree_fock_hessian(spec: JobSpec) -> Float[np.ndarray, "nuc*3 nuc*3"]:
    """Second derivatives of the energy by the nuclei, in hartree/bohr², in the spec's basis.

    Differences of gradients: pyscf's own Hessian fails for electrons of one spin only. Restricted
    for closed shells, else unrestricted. On one thread, so that a second attempt gives the same
    bits. Raises RunDirError if Hartree–Fock finds no solution.
    """
    from pyscf import lib, scf

    with lib.with_omp_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names of pyscf itself
        molecule = _molecule(spec)
        scf.hf.MUTE_CHKFILE = True  # each solver would open a temporary file
        solver = (scf.UHF if spec.system.spin else scf.RHF)(molecule)
        solver.conv_tol = 1e-10
        scanner = solver.nuc_grad_method().as_scanner()
        rows = [_difference(scanner, molecule, place) for place in range(3 * molecule.natm)]
    if any(row is None for row in rows):
        raise _no_hessian(spec, "it does not converge")
    found = np.array(rows)
    return (found + found.T) / 2.0


def _molecule(spec: JobSpec) -> "Mole":
    """The molecule of a spec, with the potentials of its cores."""
    from pyscf import gto
    from pyscf.lib.exceptions import BasisNotFoundError

    system = spec.system
    basis = by_element(spec.pretrain.basis, system.needs)
    if not isinstance(basis, str):
        names = dict(zip(system.elements, system.symbols, strict=True))
        basis = {names[element]: name for element, name in basis.items()}
    pairs = zip(system.symbols, system.cores, strict=True)
    cores = {symbol: gto.basis.parse_ecp(core.text(symbol)) for symbol, core in pairs if core}
    try:
        return gto.M(
            atom=[(atom.symbol, atom.position) for atom in system.atoms],
            unit="Bohr",
            basis=basis,
            ecp=cores,
            charge=system.charge,
            spin=system.spin,
            verbose=0,
        )
    except BasisNotFoundError as error:
        raise _no_hessian(spec, str(error)) from None


def _difference(scanner: Any, molecule: "Mole", place: int) -> np.ndarray | None:
    """The change of the gradient by one coordinate of a nucleus; None if not converged."""
    at = molecule.atom_coords()
    ends = []
    for sign in (1.0, -1.0):
        moved = at.copy()
        moved.flat[place] += sign * STEP
        _, gradient = scanner(molecule.set_geom_(moved, unit="Bohr", inplace=False))
        if not scanner.converged:
            return None
        ends.append(np.asarray(gradient).ravel())
    return (ends[0] - ends[1]) / (2.0 * STEP)


def _no_hessian(spec: JobSpec, why: str) -> RunDirError:
    advice = "choose another pretrain.basis"
    words = f"Hartree-Fock in {spec.pretrain.basis} gives no Hessian: {why}"
    return RunDirError(f"relax: {words}; {advice}")
