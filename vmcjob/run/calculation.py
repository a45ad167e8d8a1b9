"""From a job spec to the objects of `vmcjob.vmc`: what is to be run, and how it begins."""

from collections.abc import Iterator
from functools import lru_cache, partial

import jax

from vmcjob import observables
from vmcjob import spec as jobspec
from vmcjob.errors import UsageError
from vmcjob.run.optimizer import make_optimizer, make_rule, require_optimizer
from vmcjob.run.rollback import FIRST_TRY, RetryPolicy
from vmcjob.vmc import devices
from vmcjob.vmc.ansatz import WaveFunction, make_orbitals, make_psi
from vmcjob.vmc.ansatz.ferminet import FermiNet
from vmcjob.vmc.ansatz.jastrow import CuspJastrow, ThreeBodyJastrow
from vmcjob.vmc.ansatz.psiformer import Psiformer
from vmcjob.vmc.ansatz.slater import SlaterOrbitals
from vmcjob.vmc.hamiltonian import Hamiltonian, make_hamiltonian
from vmcjob.vmc.hartree_fock import Coefficients, HartreeFock, populations
from vmcjob.vmc.hartree_fock import make_orbitals as make_target
from vmcjob.vmc.kfac import Kfac
from vmcjob.vmc.loop import Vmc
from vmcjob.vmc.nucleus import Core, Gaussian
from vmcjob.vmc.observing import Observing
from vmcjob.vmc.phases import Calculation
from vmcjob.vmc.pretrain import HartreeFockSetting, Pretraining, fitting_optimizer
from vmcjob.vmc.sampler import Moves
from vmcjob.vmc.system import Home, System, bare_nuclei, exchanged, homes_of, nuclei_of

AVERAGED = 0.1
"""Part of the training, its end, whose parameters are averaged."""
FEWER_MOVES = 3
"""By this, between two steps of pretraining: what its walkers stand for does not change meanwhile,
and it fits as well to walkers that have not moved far."""


def configure_jax(numerics: jobspec.Numerics) -> None:
    """Set JAX's precision for this process; before any array is made."""
    jax.config.update("jax_enable_x64", numerics.dtype == "float64")
    jax.config.update("jax_default_matmul_precision", numerics.matmul_precision)


def make_system(spec: jobspec.System) -> System:
    """Nuclei and electrons of a spec."""
    cores = tuple(map(_core, spec.cores))
    return System(
        nuclei=tuple(atom.position for atom in spec.atoms),
        charges=spec.charges,
        n_up=spec.n_up,
        n_down=spec.n_down,
        cores=cores if any(cores) else (),
    )


def _hamiltonian(spec: jobspec.System) -> Hamiltonian:
    return make_hamiltonian(make_system(spec), spec.ecp_points or 0)  # 0: there is no quadrature


def subject_of(spec: jobspec.System) -> observables.Subject:
    """The facts about a system that observables are made from."""
    return observables.Subject(tuple(_hamiltonian(spec).terms), len(spec.atoms))


def _core(potential: jobspec.Potential | None) -> Core | None:
    """The core that a potential of a spec stands for."""
    if potential is None:
        return None
    local, *channels = (tuple(Gaussian(*term) for term in radial) for radial in potential.radials)
    return Core(potential.electrons, local, tuple(channels))


def build(
    spec: jobspec.JobSpec, start: HartreeFock | None = None, policy: RetryPolicy = FIRST_TRY
) -> Calculation:
    """The calculation that a spec describes; UsageError if the devices cannot share its walkers.

    Args:
        spec: the job.
        start: what to pretrain to, None where there is no pretraining.
        policy: how much more carefully than the spec says.
    """
    spec = policy.of_steps(spec)
    require_optimizer(spec.optimizer)
    _require_even_shares(spec.sampler.walkers)
    system = make_system(spec.system)
    ansatz = make_ansatz(spec.ansatz, system)
    pretraining = _pretraining(spec, ansatz, start, policy) if start else None
    return Calculation(
        vmc=_make_vmc(spec, policy),
        system=system,
        ansatz=ansatz,
        n_walkers=spec.sampler.walkers,
        width=spec.sampler.width,
        pretraining=pretraining,
        arrangements=_arrangements(spec, system, start),
        identity=repr((jobspec.science(spec), policy)),
    )


@lru_cache(maxsize=1)
def _make_vmc(spec: jobspec.JobSpec, policy: RetryPolicy) -> Vmc:
    """The VMC of a spec: one object for all calculations of it, so that each part is traced once.

    Args:
        spec: the job, as the policy changes it.
        policy: how much more carefully than the spec says.
    """
    system = make_system(spec.system)
    return Vmc(
        psi=make_psi(make_ansatz(spec.ansatz, system)),
        hamiltonian=_hamiltonian(spec.system),
        nuclei=nuclei_of(system),
        make_optimizer=partial(make_optimizer, spec, policy),
        rule=make_rule(spec),
        seed=spec.seed,
        moves=_moves(spec.sampler, spec.sampler.steps),
        target_acceptance=spec.sampler.target_acceptance,
        retry=policy.retries,
        chunk_divisor=policy.chunk_divisor,
        average_from=average_from(spec),
        n_up=system.n_up,
        spin_penalty=spec.train.spin_penalty,
        observing=_observing(spec),
    )


def _arrangements(
    spec: jobspec.JobSpec, system: System, start: HartreeFock | None
) -> list[list[Home]]:
    """The places where electrons start: one list, or one for each half-projected partner.

    Hartree–Fock's populations decide; an empty list leaves the decision to the system.
    """
    if start is None or spec.pretrain.method not in ("stable", "half-projected"):
        return []
    homes = homes_of(system, populations(system, start))
    if spec.pretrain.method == "stable" or start.up.ndim == 2:
        return [homes]
    return [homes, exchanged(system, homes)]


def _require_even_shares(n_walkers: int) -> None:
    n_devices = devices.count()
    if n_walkers % n_devices:
        fewer = max(n for n in range(1, n_devices) if n_walkers % n == 0)
        raise UsageError(
            f"sampler.walkers: {n_walkers} walkers cannot be shared evenly by {n_devices} devices; "
            f"use {fewer} (resources.gpus, or CUDA_VISIBLE_DEVICES), or, in a new run, "
            f"a multiple of {n_devices} walkers"
        )


def _moves(options: jobspec.Sampler, number: int) -> Moves:
    return Moves(number, options.proposal == "scaled", bool(options.jumps))


def _observing(spec: jobspec.JobSpec) -> Observing:
    made = observables.make(spec.evaluate.observables, subject_of(spec.system))
    return Observing(made, spec.evaluate.observe_every)


def _pretraining(
    spec: jobspec.JobSpec, ansatz: WaveFunction, start: HartreeFock, policy: RetryPolicy
) -> Pretraining:
    options, system = spec.pretrain, make_system(spec.system)
    return Pretraining(
        orbitals=make_orbitals(ansatz),
        target=make_target(system, start.basis, spec.ansatz.full_determinants),
        setting=HartreeFockSetting(
            nuclei_of(system), Coefficients.of(start, spec.ansatz.determinants)
        ),
        optimizer=fitting_optimizer(options.optimizer, options.learning_rate, options.steps),
        seed=spec.seed,
        moves=_moves(spec.sampler, max(1, spec.sampler.steps // FEWER_MOVES)),
        target_acceptance=spec.sampler.target_acceptance,
        retry=policy.retries,
    )


def describe_blocks(calculation: Calculation) -> Iterator[str]:
    """For K-FAC, a line about each kind of block: how many parameters' arrays, or which, are in it.

    Named one by one is what no dense layer is; kfac-jax is known to miss layers without a word.
    """
    optimizer = calculation.vmc.optimizer
    if not isinstance(optimizer, Kfac):
        return
    params = devices.unreplicate(calculation.initial_state().params)
    kinds: dict[str, list[str]] = {}
    for name, kind in optimizer.describe_blocks(params).items():
        kinds.setdefault(kind, []).append(name)
    for kind, names in kinds.items():
        yield f"K-FAC: {kind}: {len(names) if 'Kronecker' in kind else ', '.join(names)}"


def make_ansatz(options: jobspec.Ansatz, system: System) -> WaveFunction:
    """The wave function of a spec, as a flax module."""
    match options:
        case jobspec.FermiNet():
            orbitals = FermiNet(
                system=system,
                determinants=options.determinants,
                full_determinants=options.full_determinants,
                layers=options.layers,
                one_electron_width=options.one_electron_width,
                two_electron_width=options.two_electron_width,
                core_holes=bool(options.core_holes),
                rescale_inputs=options.rescale_inputs,
            )
        case jobspec.Psiformer():
            orbitals = Psiformer(
                system=system,
                determinants=options.determinants,
                full_determinants=options.full_determinants,
                layers=options.layers,
                heads=options.heads,
                head_width=options.head_width,
                mlp_width=options.mlp_width,
                layer_norm=options.layer_norm,
                core_holes=bool(options.core_holes),
            )
        case jobspec.SlaterJastrow():
            orbitals = SlaterOrbitals(
                system=system,
                determinants=options.determinants,
                full_determinants=options.full_determinants,
                functions=options.functions,
            )
            jastrow = ThreeBodyJastrow(system.n_up, options.jastrow_order, bare_nuclei(system))
            return WaveFunction(orbitals, jastrow, options.spin_symmetric)
    jastrow = CuspJastrow(system.n_up) if options.jastrow else None
    return WaveFunction(orbitals, jastrow, options.spin_symmetric)


def average_from(spec: jobspec.JobSpec) -> int | None:
    """The first step that counts for the average of parameters, if evaluation may want one."""
    if spec.evaluate.parameters == "last" or not spec.train.steps:
        return None
    return spec.train.steps - max(1, round(AVERAGED * spec.train.steps))
