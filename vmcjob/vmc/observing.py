"""Measuring more than the energy: what is handed to observables, and their means over walkers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from vmcjob import fwdlap
from vmcjob.columns import Column
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import Nuclei, Params, SignedWaveFunction
from vmcjob.vmc.hamiltonian import Hamiltonian, LocalEnergy
from vmcjob.vmc.response import Response
from vmcjob.vmc.scores import no_direction
from vmcjob.vmc.streams import Share, walker_key
from vmcjob.vmc.wavefunction import ratio

Observed = Mapping[str, Array]
"""By column, what was measured; of one walker, or its mean over all."""


Changes = Float[Array, " change"]
"""Changes of log|ψ| at one walker."""


class Walker(NamedTuple):
    """One walker, before its energy is known."""

    psi: SignedWaveFunction
    params: Params
    r: Float[Array, "elec 3"]  # bohr
    nuclei: Nuclei


@dataclass(frozen=True)
class Sample:
    """All that is known of one walker when an observable is measured."""

    hamiltonian: Hamiltonian
    psi: SignedWaveFunction
    params: Params
    r: Float[Array, "elec 3"]  # bohr
    nuclei: Nuclei
    n_up: int | None  # the first electrons of `r`; None where nobody has said
    local: LocalEnergy  # with its terms, and ∇log|ψ| and ∇²log|ψ|
    key: Array  # this walker's and this observable's own in every step
    response: Response | None = None  # of the parameters to an observable's changes

    def ratios(self, others: Float[Array, "some elec 3"]) -> Float[Array, " some"]:
        """ψ(r′) / ψ(r) of other places of the same electrons, sign and all."""

        def of_one(other: Float[Array, "elec 3"]) -> Float[Array, ""]:
            return ratio(self.psi, self.params, other, self.r, self.nuclei)

        return jax.vmap(of_one)(others)


@runtime_checkable
class Measured(Protocol):
    """The half of an observable that runs on devices."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """What it writes."""
        ...

    def measure(self, sample: Sample) -> Observed:
        """Its columns of one walker, each of the shape that it was declared with."""
        ...


@runtime_checkable
class Responding(Protocol):
    """An observable of changes of ψ, to which parameters respond (`response`)."""

    @property
    def n_changes(self) -> int:
        """The number of changes."""
        ...

    def changes(self, walker: Walker) -> Changes:
        """The changes of log|ψ| at one walker, with fixed parameters."""
        ...


@dataclass(frozen=True)
class Observing:
    """Which observables are measured, and in which steps of evaluation.

    Raises ValueError for columns of one name, and for axes of one name and several lengths: neither
    could be told apart where they are kept. Only one observable may take a response.
    """

    observables: Sequence[Measured] = ()
    every: int = 1  # in steps

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"observables are measured every {self.every} steps; give 1 or more")
        names = [name for one in self.observables for name in one.columns]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: a column of two observables; rename one")
        responding = [type(one).__name__ for one in self.observables if isinstance(one, Responding)]
        if len(responding) > 1:
            raise ValueError(f"{', '.join(responding)}: a response of one observable at a time")
        lengths: dict[str, int] = {}
        for name, column in self.columns().items():
            for axis in column.axes:
                if lengths.setdefault(axis.name, axis.length) != axis.length:
                    raise ValueError(
                        f"{name}: its axis {axis.name!r} has length {axis.length}, that of another "
                        f"column {lengths[axis.name]}; give it a name of its own"
                    )

    def is_due(self, step: Array) -> Array:
        """Whether they are measured in a step, counted from 0."""
        return (step + 1) % self.every == 0

    def columns(self) -> dict[str, Column]:
        """The columns of all observables."""
        return {name: c for one in self.observables for name, c in one.columns.items()}

    @property
    def responding(self) -> Responding | None:
        """The observable that takes a response of the parameters."""
        return next((one for one in self.observables if isinstance(one, Responding)), None)

    def no_response(self, params: Params) -> Response | None:
        """Zeros for the response; None if no observable takes one, or there are no parameters."""
        one = self.responding
        if one is None:
            return None
        none = no_direction(params)
        if not len(none):
            return None
        return jnp.zeros((one.n_changes, len(none)), none.dtype)

    def measure(self, sample: Sample) -> dict[str, Array]:
        """All columns of one walker, in its own precision.

        Raises ValueError, while a step is compiled, for what was not declared so.
        """
        found = {}
        for number, one in enumerate(self.observables):
            key = jax.random.fold_in(sample.key, number)
            measured = one.measure(replace(sample, key=key))
            shapes = {name: jnp.shape(value) for name, value in measured.items()}
            declared = {name: column.shape for name, column in one.columns.items()}
            if shapes != declared:
                raise ValueError(
                    f"{type(one).__name__}: measures columns of shapes {shapes}; "
                    f"it has declared {declared}"
                )
            found |= measured
        return {name: jnp.asarray(value, sample.r.dtype) for name, value in found.items()}


NOTHING_MORE: Final = Observing()
"""The energy alone."""


@dataclass(frozen=True)
class Measuring:
    """Local energies of a batch, and with them what is observed; inside pmap.

    Args:
        hamiltonian, psi, nuclei: whose energies.
        n_up: electrons of spin up, the first of every walker.
        observing: what else is measured.
        key: of the step.
        chunk_divisor: takes fewer walkers at a time.
        response: of the parameters, for observables that take one.
    """

    hamiltonian: Hamiltonian
    psi: SignedWaveFunction
    nuclei: Nuclei
    n_up: int | None
    observing: Observing
    key: Array
    chunk_divisor: int = 1
    response: Response | None = None

    def __call__(
        self, params: Params, r: Float[Array, "walker elec 3"]
    ) -> tuple[Float[Array, " walker"], dict[str, Array]]:
        """Local energies of this device's walkers, in hartree, and means of the observables."""

        def of_one(r: Float[Array, "elec 3"], walker: Array) -> tuple[Array, dict[str, Array]]:
            own = walker_key(self.key, Share.HAMILTONIAN, walker)
            local = self.hamiltonian.local_energy(self.psi, params, r, self.nuclei, own)
            other = walker_key(self.key, Share.OBSERVABLES, walker)
            given = self.hamiltonian, self.psi, params, r, self.nuclei, self.n_up, local, other
            sample = Sample(*given, response=self.response)
            return local.total, self.observing.measure(sample)

        batch = fwdlap.over_walkers(of_one, chunk_divisor=self.chunk_divisor)
        e_loc, observed = batch(r, devices.own_walkers(len(r)))
        return e_loc, {name: jnp.mean(values, axis=0) for name, values in observed.items()}


def when_due(
    is_due: Array,
    measure: Callable[[Params, Array], tuple[Array, dict[str, Array]]],
    energies: Callable[[Params, Array], Array],
    columns: Mapping[str, Column],
) -> Callable[[Params, Array], tuple[Array, dict[str, Array]]]:
    """Local energies in any step, and with them what is observed where it is due, else NaN."""

    def either(params: Params, r: Array) -> tuple[Array, dict[str, Array]]:
        def unobserved(params: Params, r: Array) -> tuple[Array, dict[str, Array]]:
            nothing = {n: jnp.full(c.shape, jnp.nan, r.dtype) for n, c in columns.items()}
            return energies(params, r), nothing

        def observed(params: Params, r: Array) -> tuple[Array, dict[str, Array]]:
            return measure(params, r)

        return jax.lax.cond(is_due, observed, unobserved, params, r)

    return either
