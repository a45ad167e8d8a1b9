"""Variational Monte Carlo as a library, independent of jobs, files and clusters.

A `Calculation` consists of a `System`, a wave function, a Hamiltonian, an optimizer and the
`UpdateRule` of its steps. `run` goes through its `Phase`s and yields every step. Numbers are in
atomic units. Names that are not listed here are private to their modules and may change.
"""

from vmcjob.vmc.ansatz import WaveFunction, make_orbitals, make_psi
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.ansatz.jastrow import CuspJastrow, ThreeBodyJastrow
from vmcjob.vmc.ansatz.psiformer import Psiformer
from vmcjob.vmc.ansatz.slater import SlaterOrbitals
from vmcjob.vmc.contracts import (
    Batch,
    LogPsi,
    LoopState,
    Made,
    Nuclei,
    Optimizer,
    Proposal,
    Psi,
    SignedWaveFunction,
    StepInfo,
)
from vmcjob.vmc.damping import Adaptation
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.first_order import FirstOrder, adam, lamb
from vmcjob.vmc.hamiltonian import (
    Hamiltonian,
    Kinetic,
    Multiplicative,
    make_hamiltonian,
    molecular_hamiltonian,
)
from vmcjob.vmc.hartree_fock import HartreeFock
from vmcjob.vmc.kfac import Kfac
from vmcjob.vmc.loop import Vmc, iterate
from vmcjob.vmc.nucleus import Core, Gaussian, Nucleus
from vmcjob.vmc.observing import Observing, Sample
from vmcjob.vmc.phases import Calculation, Event, Phase, run
from vmcjob.vmc.pretrain import Pretraining
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.schedule import Decay, Memory, Plateau
from vmcjob.vmc.spring import Spring
from vmcjob.vmc.sr import StochasticReconfiguration
from vmcjob.vmc.system import System, nuclei_of
from vmcjob.vmc.update import UpdateRule

__all__ = [
    "Adaptation",
    "Batch",
    "Calculation",
    "Clipping",
    "Core",
    "CuspJastrow",
    "Decay",
    "Event",
    "FermiNet",
    "FirstOrder",
    "Gaussian",
    "Hamiltonian",
    "HartreeFock",
    "Kfac",
    "Kinetic",
    "LogPsi",
    "LoopState",
    "Made",
    "Memory",
    "Moves",
    "Multiplicative",
    "Nuclei",
    "Nucleus",
    "Observing",
    "Optimizer",
    "Phase",
    "Plateau",
    "Pretraining",
    "Proposal",
    "Psi",
    "Psiformer",
    "Sample",
    "SignedWaveFunction",
    "SlaterOrbitals",
    "Spring",
    "StepInfo",
    "StochasticReconfiguration",
    "System",
    "ThreeBodyJastrow",
    "UpdateRule",
    "Vmc",
    "WaveFunction",
    "adam",
    "iterate",
    "lamb",
    "make_hamiltonian",
    "make_orbitals",
    "make_psi",
    "molecular_hamiltonian",
    "nuclei_of",
    "run",
]
