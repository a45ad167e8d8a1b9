"""Finished runs of a path, whose stores hold the forces of a known potential and noise."""

from pathlib import Path
from zlib import crc32

import numpy as np

from vmcjob.observables import Forces
from vmcjob.observables.forces import (
    COLUMNS,
    CONTROLS,
    ENERGY,
    LOCAL,
    N_FIELDS,
    NUCLEI,
    PRODUCT,
    SCORE,
)
from vmcjob.plan import Plan
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir
from vmcjob.scheduler.records import create_run
from vmcjob.spec import JobSpec, load_resolved
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES

DEPTH, SLOPE, MINIMUM = 0.174, 1.03, 1.4
"""A Morse potential, in hartree and bohr, as of the hydrogen molecule."""
N_STEPS = 400
NOISE = 0.01
"""Hartree/bohr, of the force at one step: an error of 5e-4 in the mean."""


def energy(distance: float) -> float:
    """The energy of two atoms."""
    return DEPTH * (1.0 - np.exp(-SLOPE * (distance - MINIMUM))) ** 2 - DEPTH - 1.0


def bond_force(distance: float) -> float:
    """−dE/dR."""
    decay = np.exp(-SLOPE * (distance - MINIMUM))
    return -2.0 * DEPTH * SLOPE * (1.0 - decay) * decay


def hessian(spec: JobSpec) -> np.ndarray:
    """The exact second derivatives by the positions of two atoms on the z axis."""
    z = [atom.position[2] for atom in spec.system.atoms]
    decay = np.exp(-SLOPE * (abs(z[1] - z[0]) - MINIMUM))
    found = np.zeros((6, 6))
    curvature = 2.0 * DEPTH * SLOPE**2 * (2.0 * decay**2 - decay)
    found[2::3, 2::3] = curvature * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return found


def finish_last(root: Path, plan: Plan, noise: float = NOISE, n_bad: int = 0) -> RunDir:
    """Finish the run of a plan, as a worker would."""
    (task,) = plan.tasks
    return finish(create_run(root, plan.source, task), noise, n_bad)


def finish(run: RunDir, noise: float = NOISE, n_bad: int = 0) -> RunDir:
    """Give a run of two atoms a store with its energy and forces, and an outcome.

    Forces of the first `n_bad` steps are not finite.
    """
    text = run.read_spec_text()
    atoms = load_resolved(text, "test").system.atoms
    positions = np.array([atom.position for atom in atoms])
    apart = positions[1] - positions[0]
    distance = float(np.linalg.norm(apart))
    random = np.random.default_rng(crc32(text.encode()))
    axis = apart / distance
    force = bond_force(distance) + noise * random.normal(size=N_STEPS)
    local = np.zeros((N_STEPS, 2, 3, 2))
    local[..., 0] = force[:, None, None] * np.stack([-axis, axis])
    local[:n_bad] = np.nan
    empty = np.zeros((N_STEPS, 2, 3, 3))
    energies = energy(distance) + 0.1 * noise * random.normal(size=N_STEPS)
    observed = {
        LOCAL: local,
        SCORE: empty,
        PRODUCT: empty,
        ENERGY: energies,
        NUCLEI: np.tile(positions, (N_STEPS, 1, 1)),
        CONTROLS: np.zeros((N_STEPS, 2, 3, N_FIELDS)),
    }
    assert set(observed) == set(COLUMNS)
    series = {name: np.ones(N_STEPS) for name in SERIES["evaluate"]} | {"energy": energies}
    layout = Layout(0, N_STEPS, 4, 2, 0, observed=Forces(2).columns)
    store = RunStore.create(
        run.store_path, run_id=run.path.name, spec_text=text, provenance={}, layout=layout
    )
    state = Checkpoint("evaluate", N_STEPS, {"walkers": np.zeros((4, 2, 3), np.float32)})
    store.commit(Commit(evaluate=series, observed=observed, checkpoint=state))
    at_end = Heartbeat(phase=Activity.DONE, step=N_STEPS, n_steps=N_STEPS)
    run.write_heartbeat(at_end)
    run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    return run
