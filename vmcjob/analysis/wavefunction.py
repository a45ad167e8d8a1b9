"""A trained wave function that can be evaluated at any electron positions."""

from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike

from vmcjob.errors import UsageError
from vmcjob.run.calculation import make_ansatz, make_system
from vmcjob.run.state import params_from
from vmcjob.spec import JobSpec
from vmcjob.vmc.ansatz import WaveFunction, make_psi
from vmcjob.vmc.contracts import Nuclei, Params, Psi
from vmcjob.vmc.system import System, nuclei_of


def restore(spec: JobSpec, arrays: Mapping[str, np.ndarray]) -> "TrainedWaveFunction":
    """The wave function of a spec with the parameters of a checkpoint.

    StoreError if the parameters belong to another wave function. UsageError if JAX would compute in
    lower precision than the run did.
    """
    if spec.numerics.dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise UsageError(
            "the run was computed in float64 and JAX computes in float32 here; begin with "
            'jax.config.update("jax_enable_x64", True)'
        )
    system = make_system(spec.system)
    ansatz = make_ansatz(spec.ansatz, system)
    nuclei = nuclei_of(system)
    r = jax.ShapeDtypeStruct((spec.system.n_electrons, 3), spec.numerics.dtype)
    like = jax.eval_shape(ansatz.init, jax.random.key(0), r, nuclei)
    params = jax.tree.map(jnp.asarray, params_from(arrays, like))
    return TrainedWaveFunction(ansatz, params, system, spec.numerics.matmul_precision)


class TrainedWaveFunction:
    """ψ at electron positions in bohr, of shape (electron, 3) or (…, electron, 3).

    Attributes:
        module, params: of flax; ``module.apply(params, r, nuclei)`` is ψ of one configuration.
        system, nuclei: the molecule. Electrons of spin up come first.
    """

    def __init__(
        self, module: WaveFunction, params: Params, system: System, matmul_precision: str
    ) -> None:
        """Use `Run.wave_function`."""
        self.module, self.params, self.system = module, params, system
        self._matmul_precision = matmul_precision

    @property
    def nuclei(self) -> Nuclei:
        """Positions of the nuclei in bohr, and charges in e."""
        return nuclei_of(self.system)

    def __call__(self, r: ArrayLike) -> Psi:
        """ψ of each configuration: `phase` is 1 or −1, `log_abs` is log|ψ|."""
        positions = jnp.asarray(r)
        *shape, n, axes = positions.shape if positions.ndim > 1 else (0, 0)
        wanted = (self.system.n_up + self.system.n_down, 3)
        if (n, axes) != wanted:
            raise ValueError(f"expected positions of shape (…, {wanted[0]}, 3), got {r!r:.60}")
        with jax.default_matmul_precision(self._matmul_precision):
            psi = self._evaluate(self.params, positions.reshape(-1, n, 3), self.nuclei)
        return Psi(*(jnp.reshape(part, shape) for part in psi))

    def log_abs(self, r: ArrayLike) -> Array:
        """log|ψ| of each configuration."""
        return self(r).log_abs

    @cached_property
    def _evaluate(self):
        return jax.jit(jax.vmap(make_psi(self.module), (None, 0, None)))
