"""Pretraining: a network's orbitals are fitted to those of Hartree–Fock before VMC begins.

From random parameters VMC spends most of its time finding what Hartree–Fock knows already, and for
more than a few electrons it may never find it (arXiv:1909.02487, section III D).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float

from vmcjob.vmc import devices
from vmcjob.vmc.ansatz.determinants import Stacks, sum_of_determinants
from vmcjob.vmc.contracts import LogPsi, LoopState, Nuclei, OptimizerState, Params
from vmcjob.vmc.hartree_fock import Coefficients, Orbitals
from vmcjob.vmc.sampler import Moves, sample, tune_width
from vmcjob.vmc.steps import Given, Step, on_all_devices, step_of
from vmcjob.vmc.streams import Stream, device_key

SOON: Final[dict[str, str | bool]] = {"xla_backend_optimization_level": "1"}
"""For a program that takes longer to compile than it then runs: two thirds of the time for as
fast a step, or nearly so."""


class HartreeFockSetting(NamedTuple):
    """What a step of pretraining takes as given."""

    nuclei: Nuclei
    coefficients: Coefficients  # of the target's orbitals


class PretrainInfo(NamedTuple):
    """What one step of pretraining tells, over the walkers of all devices."""

    loss: Float[Array, ""]  # squared relative distance of an electron's orbitals
    acceptance: Float[Array, ""]
    is_finite: Bool[Array, ""]


def fitting_optimizer(
    kind: Literal["adam", "lamb"], learning_rate: float, n_steps: int
) -> optax.GradientTransformation:
    """Adam or LAMB whose learning rate falls to zero within so many steps, as a cosine."""
    schedule = optax.cosine_decay_schedule(learning_rate, n_steps)
    return {"adam": optax.adam, "lamb": optax.lamb}[kind](schedule)


@dataclass(frozen=True)
class Pretraining:
    """Fits orbitals where the electrons of the Hartree–Fock determinant are.

    Args:
        orbitals: of the network, for one walker.
        target: of Hartree–Fock, shaped alike; its one determinant is every determinant's target,
            or each has its own.
        setting: of both.
        optimizer: takes gradients of the mean squared distance.
        seed, moves, target_acceptance, retry: as in `Vmc`.
    """

    orbitals: Callable[[Params, Array, Nuclei], Stacks]
    target: Orbitals
    setting: HartreeFockSetting
    optimizer: optax.GradientTransformation
    seed: int
    moves: Moves
    target_acceptance: float
    retry: int = 0

    def init(self, params: Params) -> OptimizerState:
        """The state of the optimizer before the first step."""
        return jax.jit(self.optimizer.init)(params)  # one program, not one for each leaf

    def step(self) -> Step:
        """Sample the Hartree–Fock determinant, fit the network's orbitals, tune the width."""

        def step(state: LoopState, now: Given) -> tuple[LoopState, PretrainInfo]:
            key = device_key(now.stream, now.step)
            log_target = self.log_target(now.setting)
            nuclei = now.setting.nuclei
            chain, _, accepted = sample(log_target, None, key, state.chain, self.moves, nuclei)
            acceptance = devices.mean(accepted)
            distance = jax.value_and_grad(partial(self._distance, now.setting))
            loss, gradient = devices.mean(distance(state.params, chain.r))
            change, memory = self.optimizer.update(gradient, state.optimizer, state.params)
            params = optax.apply_updates(state.params, change)
            chain = tune_width(chain, acceptance, self.target_acceptance)
            new = state._replace(params=params, optimizer=memory, chain=chain)
            return new, PretrainInfo(loss, acceptance, devices.all_finite((loss, new)))

        number = Stream.PRETRAIN.number(self.retry)
        made = step_of(on_all_devices(step), self.seed, number, self.setting)
        return replace(made, options=SOON)

    def log_target(self, setting: HartreeFockSetting) -> LogPsi:
        """log|ψ| of the target's determinants, which has no parameters."""

        def log_psi(params: None, r: Float[Array, "elec 3"]) -> Float[Array, ""]:
            del params
            return sum_of_determinants(self.target(r, *setting)).log_abs

        return log_psi

    def _distance(
        self, setting: HartreeFockSetting, params: Params, r: Float[Array, "walker elec 3"]
    ) -> Float[Array, ""]:
        """Mean over walkers, determinants and electrons i of Σ_j (φ_j − φ_j^HF)² / Σ_j (φ_j^HF)².

        Relative in every row, for ψ is linear in it: an absolute distance would see to the core,
        where orbitals are large, and leave the valence electrons as they are. Of several
        determinants, relative to the largest row: where one vanishes, the others are ψ.
        """

        def of_one(r: Float[Array, "elec 3"]) -> Float[Array, ""]:
            rows = []
            matrices = self.orbitals(params, r, setting.nuclei), self.target(r, *setting)
            for found, wanted in zip(*matrices, strict=True):
                size = jnp.max(jnp.sum(wanted**2, axis=-1), axis=0, keepdims=True)
                # An electron so far out that the target underflows has nothing to learn from it.
                square = jnp.sum((found - wanted) ** 2, axis=-1) / jnp.where(size > 0.0, size, 1.0)
                rows.append(jnp.mean(jnp.where(size > 0.0, square, 0.0), axis=0))
            return jnp.mean(jnp.concatenate(rows))

        return jnp.mean(jax.vmap(of_one)(r))
