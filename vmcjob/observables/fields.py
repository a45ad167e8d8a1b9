"""Control variates: correlated with an observable, of mean zero, and computed at no extra cost.

For any smooth vector field f of the electrons' positions that grows more slowly than ψ² falls,

    ⟨∇·f + 2 f·∇log|ψ|⟩ = 0,

because this is the integral of ∇·(f ψ²). The gradient is already computed for the kinetic energy.
The fields used here are bounded where electrons meet nuclei or each other, and do not contain the
gradient. So the controls have a finite variance at the nodes of ψ, unlike the control of f =
∇log|ψ|.

`measure` of an observable uses only operators of arrays. `observables.regression` applies the
controls to the series.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vmcjob.columns import Axis, Column

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Sample

SUFFIX = "_controls"
"""Ending of the name of a control column; its last axis runs over fields."""


def control_column(of: str, axes: tuple[Axis, ...], n_fields: int) -> dict[str, Column]:
    """The column of an observable's controls, by name; each element has its own fields."""
    fields = Axis(f"{of}_field", n_fields)
    column = Column("1", f"control variates of {of}, each of mean 0", (*axes, fields))
    return {of + SUFFIX: column}


def is_control(name: str) -> bool:
    """Whether a column contains control variates, which are not results."""
    return name.endswith(SUFFIX)


class Geometry:
    """Distances, directions, and slopes of log|ψ| along them, of one walker; any arrays."""

    def __init__(self, sample: "Sample") -> None:
        """If no term of the Hamiltonian takes derivatives, all slopes count as zero."""
        jet = sample.local.jet
        self.r = sample.r
        self.gradient = sample.r * 0.0 if jet is None else jet.gradient
        self.is_known = jet is not None
        self.x = sample.r[:, None, :] - sample.nuclei.positions  # (electron, nucleus, xyz)
        self.d = (self.x**2).sum(axis=-1) ** 0.5
        self.hat = self.x / self.d[..., None]
        self.slope = (self.hat * self.gradient[:, None, :]).sum(axis=-1)  # ∂log|ψ|/∂d
        self.weights = (sample.nuclei.charges * 0.0 + 1.0, sample.nuclei.charges)

    def along_axes(self) -> Any:
        """Controls of a dipole moment, (xyz, field), in the order of the formulas.

        With weights w_I of 1 and of Z_I, along each axis e,

            f = e,    Σ_I w_I |r − R_I| e,    Σ_I w_I (r − R_I)·e (r − R_I)/|r − R_I|.
        """
        found = [2.0 * self.gradient.sum(axis=0)]
        for w in self.weights:
            directions = (self.hat * w[:, None]).sum(axis=(0, 1))
            by_distance = ((self.d * w).sum(axis=-1)[:, None] * self.gradient).sum(axis=0)
            radial = (self.x * (self.slope * w)[..., None]).sum(axis=(0, 1))
            found += [directions + 2.0 * by_distance, 3.0 * directions + 2.0 * radial]
        return self._stacked(found)

    def scaling(self) -> Any:
        """Controls of a radius, (field,).

        The fields are  f = r,  |r| r,  Σ_I |r − R_I| (r − R_I),  and `_towards_nuclei` with weights
        of 1.
        """
        radius = (self.r**2).sum(axis=-1) ** 0.5
        virial = (self.r * self.gradient).sum(axis=-1)
        about_nuclei = (4.0 * self.d + 2.0 * self.d**2 * self.slope).sum()
        found = [
            self._virial(),
            (4.0 * radius + 2.0 * radius * virial).sum(),
            about_nuclei,
            self._towards_nuclei(self.weights[0]),
        ]
        return self._stacked(found)

    def singular(self) -> Any:
        """Controls of energies, (field,).

        The fields are `_towards_nuclei` with weights of 1 and of Z,  f = r,  and f_i = Σ_j (r_i −
        r_j)/|r_i − r_j|.
        """
        i, j = np.triu_indices(self.r.shape[0], k=1)
        apart = self.r[i] - self.r[j]
        distance = (apart**2).sum(axis=-1) ** 0.5
        slopes = (apart * (self.gradient[i] - self.gradient[j])).sum(axis=-1) / distance
        found = [self._towards_nuclei(w) for w in self.weights]
        return self._stacked([*found, self._virial(), (4.0 / distance + 2.0 * slopes).sum()])

    def _virial(self) -> Any:
        """Control of f = r:  3N + 2 Σ r·∇log|ψ|."""
        return 3.0 * self.r.shape[0] + 2.0 * (self.r * self.gradient).sum()

    def _towards_nuclei(self, w: Any) -> Any:
        """Control of f = Σ_I w_I (r − R_I)/|r − R_I|: as singular as the attraction."""
        return (w * (2.0 / self.d + 2.0 * self.slope)).sum()

    def _stacked(self, controls: Sequence[Any]) -> Any:
        """The controls along a new last axis; all zero if there are no derivatives."""
        units = np.eye(len(controls)) * self.is_known
        return sum(one[..., None] * unit for one, unit in zip(controls, units, strict=True))
