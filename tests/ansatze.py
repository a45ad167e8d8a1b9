"""Small wave functions for tests."""

from collections.abc import Callable

from tests.wavefunctions import Clamped
from vmcjob.vmc.ansatz import WaveFunction
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.ansatz.jastrow import CuspJastrow, ThreeBodyJastrow
from vmcjob.vmc.ansatz.psiformer import Psiformer
from vmcjob.vmc.ansatz.slater import SlaterOrbitals
from vmcjob.vmc.system import System, bare_nuclei


def small_ferminet(
    system: System, determinants: int = 2, full_determinants: bool = True, jastrow: bool = True
) -> Clamped:
    """A FermiNet of two narrow layers."""
    orbitals = FermiNet(system, determinants, full_determinants, 2, 8, 4)
    return Clamped(WaveFunction(orbitals, CuspJastrow(system.n_up) if jastrow else None), system)


def small_psiformer(
    system: System,
    determinants: int = 2,
    full_determinants: bool = True,
    jastrow: bool = True,
    layer_norm: bool = False,
) -> Clamped:
    """A Psiformer of two narrow layers, two heads in each."""
    orbitals = Psiformer(system, determinants, full_determinants, 2, 2, 4, 8, layer_norm)
    return Clamped(WaveFunction(orbitals, CuspJastrow(system.n_up) if jastrow else None), system)


def small_slater_jastrow(
    system: System, determinants: int = 2, full_determinants: bool = True, jastrow: bool = True
) -> Clamped:
    """Two functions of each subshell and powers up to the third."""
    orbitals = SlaterOrbitals(system, determinants, full_determinants, 2)
    factor = ThreeBodyJastrow(system.n_up, 3, bare_nuclei(system)) if jastrow else None
    return Clamped(WaveFunction(orbitals, factor), system)


ANSATZE: dict[str, Callable[..., Clamped]] = {
    "ferminet": small_ferminet,
    "psiformer": small_psiformer,
    "slater-jastrow": small_slater_jastrow,
}
