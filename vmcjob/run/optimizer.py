"""The optimizer of a job spec, and the rule of its steps."""

import math
from typing import Final

from vmcjob import spec as jobspec
from vmcjob.errors import UsageError
from vmcjob.run.rollback import RetryPolicy
from vmcjob.vmc.contracts import LocalEnergies, LogPsi, Optimizer
from vmcjob.vmc.damping import Adaptation
from vmcjob.vmc.energy import Clipping
from vmcjob.vmc.first_order import FirstOrder, adam, lamb
from vmcjob.vmc.kfac import Kfac
from vmcjob.vmc.kfac_layers import KfacUnavailableError
from vmcjob.vmc.kfac_layers import load as load_kfac
from vmcjob.vmc.schedule import (
    FIRST_MEMORY,
    Decay,
    FallingDamping,
    LearningRate,
    Memory,
    Plateau,
)
from vmcjob.vmc.spring import Spring
from vmcjob.vmc.sr import StochasticReconfiguration
from vmcjob.vmc.streams import Stream
from vmcjob.vmc.update import CLIPPING, UpdateRule

COLUMNS: Final = {
    jobspec.Sr: StochasticReconfiguration.columns,
    jobspec.MinSr: Spring.columns,
    jobspec.Spring: Spring.columns,
    jobspec.Kfac: Kfac.columns,
    jobspec.Adam: FirstOrder.columns,
    jobspec.Lamb: FirstOrder.columns,
}
"""What an optimizer of each kind tells, before there is one: of nuclei and a wave function."""


def make_optimizer(
    spec: jobspec.JobSpec, policy: RetryPolicy, log_psi: LogPsi, local_energies: LocalEnergies
) -> Optimizer:
    """The optimizer of a spec, for given nuclei."""
    options = spec.optimizer
    match options:
        case jobspec.Sr():
            return StochasticReconfiguration(
                log_psi=log_psi,
                damping=options.damping,
                is_lazy=options.scores == "lazy",
                cg_iterations=options.cg_iterations,
                cg_tolerance=options.cg_tolerance,
            )
        case jobspec.MinSr() | jobspec.Spring():
            return Spring(
                log_psi=log_psi,
                damping=_spring_damping(options),
                memory=_memory(options),
                chunk_divisor=policy.chunk_divisor,
            )
        case jobspec.Kfac():
            return _kfac(spec, options, log_psi, local_energies, policy)
        case jobspec.Adam():
            return FirstOrder(log_psi, adam(options.b1, options.b2))
        case jobspec.Lamb():
            return FirstOrder(log_psi, lamb(options.b1, options.b2))


def make_rule(spec: jobspec.JobSpec) -> UpdateRule:
    """The update rule of a spec, independent of the optimizer."""
    options = spec.optimizer
    is_free = isinstance(options, jobspec.Adam | jobspec.Lamb)
    return UpdateRule(
        learning_rate=learning_rate(spec),
        clipping=_clipping(options),
        norm_constraint=math.inf if is_free else options.norm_constraint,
        min_ess=spec.train.min_ess,
    )


def require_optimizer(options: jobspec.Optimizer) -> None:
    """UsageError if the optimizer's packages are missing or do not work.

    Called before any array is made; optimizers are made later, when the nuclei are known.
    """
    if not isinstance(options, jobspec.Kfac):
        return
    try:
        load_kfac()
    except KfacUnavailableError as error:
        raise UsageError(f"optimizer.kind: {error}, or choose spring") from error


def learning_rate(spec: jobspec.JobSpec) -> LearningRate:
    """The learning-rate schedule of a spec."""
    options = spec.optimizer
    match options.plateau, options.final_rate:
        case float(plateau), float(final):
            return Plateau(options.learning_rate, spec.train.steps, plateau, final)
    return Decay(options.learning_rate, options.decay_steps or math.inf)


def _clipping(options: jobspec.Optimizer) -> Clipping:
    return Clipping(options.clip or CLIPPING.width, options.clip_centre)


def _memory(options: jobspec.MinSr | jobspec.Spring) -> Memory:
    if isinstance(options, jobspec.MinSr):
        return Memory(0.0)
    return Memory(options.momentum, options.momentum_growth)


def _spring_damping(options: jobspec.MinSr | jobspec.Spring) -> float | FallingDamping:
    """The damping: inversely proportional to the memory, while this grows."""
    if isinstance(options, jobspec.MinSr) or not (
        options.damping_minimum and options.momentum_growth
    ):
        return options.damping
    minimum = min(options.damping_minimum, options.damping)
    decay = Decay(options.damping, FIRST_MEMORY / options.momentum_growth, minimum)
    return FallingDamping(decay, options.damping_per_variance)


def _kfac(
    spec: jobspec.JobSpec,
    options: jobspec.Kfac,
    log_psi: LogPsi,
    local_energies: LocalEnergies,
    policy: RetryPolicy,
) -> Kfac:
    return Kfac(
        log_psi=log_psi,
        n_electrons=spec.system.n_electrons,
        damping=_damping(options, log_psi, local_energies),
        momentum=options.momentum,
        curvature_decay=options.curvature_decay,
        inverse_period=options.inverse_period,
        is_inverse_exact=options.inverse == "exact",
        estimation_mode=options.estimation_mode,
        burn_in=options.burn_in,
        l2=options.l2,
        seed=spec.seed,
        stream=Stream.CURVATURE.number(policy.retries),
    )


def _damping(
    options: jobspec.Kfac, log_psi: LogPsi, local_energies: LocalEnergies
) -> Decay | Adaptation:
    match options:
        case jobspec.Kfac(
            damping_adaptation_period=int(period),
            damping_adaptation_decay=float(decay),
            damping_minimum=float(minimum),
            damping_maximum=float(maximum),
        ):
            return Adaptation(
                log_psi=log_psi,
                local_energies=local_energies,
                clipping=_clipping(options),
                initial=options.damping,
                minimum=minimum,
                maximum=maximum,
                period=period,
                decay=decay,
                l2=options.l2,
            )
    decay_steps = options.damping_decay_steps or math.inf
    return Decay(options.damping, decay_steps, options.damping_minimum or 0.0)
