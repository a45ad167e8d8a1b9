"""Control variates: numbers that vary with an observable, have a mean of zero, and cost nothing.

For any smooth vector field f of the electrons' positions that ψ² outgrows at infinity,

    ⟨∇·f + 2 f·∇log|ψ|⟩ = 0,

for it is the integral of ∇·(f ψ²). The gradient is there already, for the kinetic energy. The
fields here are bounded where electrons meet nuclei or each other, and do not contain the gradient:
at the nodes of ψ, their controls have a finite variance, which that of f = ∇log|ψ| has not.

Written with operators alone, like all that observables measure; see `observables.regression` for
what becomes of the series.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vmcjob.columns import Axis, Column

if TYPE_CHECKING:
    from vmcjob.vmc.observing import Sample

SUFFIX = "_controls"
"""Of the column with an observable's controls; the last axis runs over fields."""


def control_column(of: str, axes: tuple[Axis, ...], n_fields: int) -> dict[str, Column]:
    """The column of the controls of an observable with some axes; each has its own fields."""
    fields = Axis(f"{of}_field", n_fields)
    column = Column("1", f"control variates of {of}, each of mean 0", (*axes, fields))
    return {of + SUFFIX: column}


def is_control(name: str) -> bool:
    """Whether a column has control variates, which are no results by themselves."""
    return name.endswith(SUFFIX)


class Geometry:
    """One walker's distances, directions, and slopes of log|ψ| along them; arrays of any kind."""

    def __init__(self, sample: "Sample") -> None:
        """Where no term of the Hamiltonian takes derivatives, all slopes count as none."""
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
        """Controls of a radius, (field,):  f = r,  |r| r,  Σ_I |r − R_I| (r − R_I),  and those of
        `_towards_nuclei` with weights of 1.
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
        """Controls of energies, (field,): `_towards_nuclei` with weights of 1 and Z,  f = r,  and
        f_i = Σ_j (r_i − r_j)/|r_i − r_j|.
        """
        i, j = np.triu_indices(self.r.shape[0], k=1)
        apart = self.r[i] - self.r[j]
        distance = (apart**2).sum(axis=-1) ** 0.5
        slopes = (apart * (self.gradient[i] - self.gradient[j])).sum(axis=-1) / distance
        found = [self._towards_nuclei(w) for w in self.weights]
        return self._stacked([*found, self._virial(), (4.0 / distance + 2.0 * slopes).sum()])

    def _virial(self) -> Any:
        """f = r:  3N + 2 Σ r·∇log|ψ|."""
        return 3.0 * self.r.shape[0] + 2.0 * (self.r * self.gradient).sum()

    def _towards_nuclei(self, w: Any) -> Any:
        """f = Σ_I w_I (r − R_I)/|r − R_I|, whose divergence is as singular as the attraction."""
        return (w * (2.0 / self.d + 2.0 * self.slope)).sum()

    def _stacked(self, controls: Sequence[Any]) -> Any:
        """Along a new last axis; nought, which helps nobody, where there are no derivatives."""
        units = np.eye(len(controls)) * self.is_known
        return sum(one[..., None] * unit for one, unit in zip(controls, units, strict=True))
