"""Single updates, as the loop makes them, of walkers and local energies from anywhere."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

import jax
from jax import Array

from vmcjob.vmc.contracts import ChainState, LogPsi, LoopState, Optimizer, OptimizerState, Params
from vmcjob.vmc.update import Updated, UpdateRule


@dataclass(frozen=True)
class Updating:
    """An optimizer with the rule by which its steps are made."""

    log_psi: LogPsi
    optimizer: Any  # an `Optimizer`, with what is its own
    rule: UpdateRule

    @classmethod
    def make(cls, log_psi: LogPsi, make: Callable[..., Optimizer], options: dict[str, Any]) -> Self:
        """From the options of both, by their names."""
        of_rule = {field.name for field in fields(UpdateRule)} & options.keys()
        own = {name: value for name, value in options.items() if name not in of_rule}
        rule = UpdateRule(**{name: options[name] for name in of_rule})
        return cls(log_psi, make(log_psi=log_psi, **own), rule)

    def init(self, params: Params) -> OptimizerState:
        """The optimizer's state before the first update."""
        assert isinstance(self.optimizer, Optimizer)
        return self.optimizer.init(params)

    def update(
        self, params: Params, state: OptimizerState, r: Array, e_loc: Array, step: Array
    ) -> Updated:
        """One update; inside pmap."""
        log_abs = jax.vmap(self.log_psi, (None, 0))(params, r)
        before = LoopState(params, state, ChainState(r, log_abs[0]))
        return self.rule.update(self.optimizer, self.log_psi, before, log_abs, e_loc, step)
