"""Relaxation in a spec: how a geometry follows its forces, and when the path ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from vmcjob.document import Clash, above, at_least, between
from vmcjob.spec.basis import why_not
from vmcjob.spec.evaluate import MAX_STEPS
from vmcjob.spec.model import JobSpec

Atoms = tuple[Annotated[int, at_least(0)], ...]


@dataclass(frozen=True)
class Relax:
    """Relaxation of the geometry: a path of runs, each at the geometry that the last one led to."""

    force_tolerance: Annotated[
        float, above(0), "hartree/bohr: the path ends where all forces and errors are smaller"
    ] = 1e-3
    max_steps: Annotated[int, between(1, 1000), "geometries of the path, the first included"] = 10
    train_steps: Annotated[
        int | None,
        between(0, MAX_STEPS),
        "updates at each geometry but the first; a quarter of train.steps",
    ] = None
    fixed: Annotated[Atoms, "atoms that stay, by their numbers, counted from 0"] = ()

    def clashes(self) -> Iterator[Clash]:
        """Repeated numbers of atoms."""
        for place, atom in enumerate(self.fixed):
            if atom in self.fixed[:place]:
                yield Clash(("fixed",), f"{atom} is already in the list", (place,))

    def updates(self, spec: JobSpec) -> int:
        """Updates of the parameters at each geometry but the first."""
        return spec.train.steps // 4 if self.train_steps is None else self.train_steps


def why_not_relaxed(relax: Relax, specs: list[JobSpec]) -> Iterator[tuple[str | None, str]]:
    """Reasons why the jobs of a spec have no relaxation, each with its key in `[relax]`."""
    if len(specs) > 1:
        yield None, f"one geometry is relaxed at a time, and the spec asks for {len(specs)} jobs"
        return
    (spec,) = specs
    n_atoms = len(spec.system.atoms)
    if n_atoms < 2:
        yield None, "an atom alone feels no force; expected at least two atoms in system.atoms"
        return
    if "forces" not in spec.evaluate.observables:
        yield None, 'a geometry follows its forces; set evaluate.observables = ["forces"]'
    needs = spec.system.needs
    if why := why_not(spec.pretrain.basis, needs, spec.system.symbols):
        yield None, f"its Hessian is that of Hartree-Fock, and pretrain.basis {why}"
    if missing := [str(atom) for atom in relax.fixed if atom >= n_atoms]:
        words = f"there is no atom {', '.join(missing)}; expected numbers from 0 to {n_atoms - 1}"
        yield "fixed", words
    elif len(relax.fixed) == n_atoms:
        yield "fixed", "no atom is left to move; leave at least one of them out"
