"""Small wave functions for tests."""

from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.ansatz.jastrow import CuspJastrow
from vmcjob.vmc.system import System


def small_ferminet(
    system: System, determinants: int = 2, full_determinants: bool = True, jastrow: bool = True
) -> WaveFunction:
    """A FermiNet of two narrow layers."""
    orbitals = FermiNet(system, determinants, full_determinants, 2, 8, 4)
    return WaveFunction(orbitals, CuspJastrow(system.n_up) if jastrow else None)
