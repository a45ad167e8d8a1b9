"""The Hessian that moves are made with."""

import numpy as np
import pytest

from vmcjob.errors import RunDirError
from vmcjob.relaxation.hessian import hartree_fock_hessian
from vmcjob.run.calculation import make_system
from vmcjob.spec import JobSpec, parse_spec
from vmcjob.spec.basis import by_element
from vmcjob.vmc.hartree_fock import solve


def spec_of(atoms: str, more: str = "", basis: str = "sto-3g") -> JobSpec:
    start = f'[pretrain]\nsteps = 0\nbasis = "{basis}"\n'
    text = f'name = "a"\n[system]\natoms = [{atoms}]\n{more}\n{start}'
    return parse_spec(text, "a.toml").points[0].spec


def test_the_hessian_of_a_bond_is_that_of_its_energies() -> None:
    """Other units, or axes in another order, would make every move too long or across."""
    from pyscf import gto, scf

    energies = []
    for z in (1.39, 1.40, 1.41):
        molecule = gto.M(atom=f"H 0 0 0; H 0 0 {z}", unit="Bohr", basis="sto-3g", verbose=0)
        energies.append(scf.RHF(molecule).kernel() or 0.0)
    second = (energies[0] - 2.0 * energies[1] + energies[2]) / 0.01**2
    found = hartree_fock_hessian(spec_of('["H", 0, 0, 0], ["H", 0, 0, 1.4]'))
    expected = np.zeros((6, 6))
    expected[2::3, 2::3] = second * np.array([[1.0, -1.0], [-1.0, 1.0]])
    along = found[2::3, 2::3]
    np.testing.assert_allclose(along, expected[2::3, 2::3], atol=2e-3)  # of the differences
    np.testing.assert_array_equal(found, found.T)
    # Across the bond, the curvature is the slope of the energy over the distance.
    slope = (energies[2] - energies[0]) / 0.02
    assert found[0, 0] == pytest.approx(slope / 1.4, abs=1e-3)


def test_molecules_with_unpaired_electrons_have_a_hessian_too() -> None:
    found = hartree_fock_hessian(spec_of('["H", 0, 0, 0], ["H", 0, 0, 2.0]', "charge = 1"))
    assert found.shape == (6, 6)
    assert found[5, 5] > 0.05


def test_a_core_potential_is_part_of_the_energy() -> None:
    """The Hessian of lithium hydride with all electrons is another one, and has other functions."""
    specs = [
        spec_of(f'["Li", 0, 0, 0], ["H", 0, 0, {z}]', 'ecp = "ccecp"', "ccecp-ccpvdz")
        for z in (3.18, 3.2, 3.22)
    ]
    of_elements = by_element("ccecp-ccpvdz", specs[1].system.needs)
    energies = [solve(make_system(spec.system), of_elements).energy for spec in specs]
    second = (energies[0] - 2.0 * energies[1] + energies[2]) / 0.02**2
    found = hartree_fock_hessian(specs[1])
    assert found[5, 5] == pytest.approx(second, abs=2e-4)
    assert found[5, 5] == pytest.approx(-found[2, 5], abs=1e-5)


def test_an_element_that_the_basis_does_not_have_is_told() -> None:
    spec = spec_of('["H", 0, 0, 0], ["Og", 0, 0, 3.0]')
    with pytest.raises(RunDirError, match=r"sto-3g gives no Hessian.*pretrain\.basis"):
        hartree_fock_hessian(spec)
