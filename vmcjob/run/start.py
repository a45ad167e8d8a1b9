"""The start of a run: Hartree–Fock or another run; the Hartree–Fock solution to compare with."""

import logging
from dataclasses import replace

import numpy as np

from vmcjob.errors import RunDirError
from vmcjob.run.calculation import make_system
from vmcjob.run.poles import ANSATZ_VERSION, refuse_poles
from vmcjob.run.replica import Replica
from vmcjob.run.state import WALKERS
from vmcjob.rundir import RunDir
from vmcjob.spec import JobSpec, by_element, load_resolved, why_no_start
from vmcjob.store import Checkpoint, HartreeFockRecord, RunStore
from vmcjob.vmc.casscf import ActiveSpace
from vmcjob.vmc.hartree_fock import HartreeFock, HartreeFockError, solve
from vmcjob.vmc.warp import follow

log = logging.getLogger("vmcjob")
ONE_DETERMINANT = (
    "ansatz.determinants: 1 determinant cannot hold the singlet of a bond that is nearly broken; "
    "the run begins with restricted orbitals, and its energy may stay high; set 2 or more"
)


def read_start(run_dir: RunDir, spec: JobSpec) -> Checkpoint | None:
    """The last checkpoint of the run to start from, with walkers moved to the new nuclei."""
    if spec.train.start_from is None:
        return None
    store = RunStore.open(run_dir.start_path, run_id=spec.train.start_from)
    origin = load_resolved(store.attrs["spec"], str(run_dir.start_path))
    if reason := why_no_start(spec, origin):
        raise RunDirError(f"train.start_from: {spec.train.start_from} {reason}")
    restored = store.checkpoint()
    if restored is None:
        raise RunDirError(f"{run_dir.start_path}: there is no checkpoint to start from")
    if store.attrs.get("ansatz_version", 1) < ANSATZ_VERSION:
        refuse_poles(restored.checkpoint.arrays)
    checkpoint = restored.checkpoint
    if not spec.train.follow_nuclei or spec.system.charges != origin.system.charges:
        return checkpoint
    before, after = (np.array(make_system(each.system).nuclei) for each in (origin, spec))
    walkers = follow(checkpoint.arrays[WALKERS], before, after)
    return replace(checkpoint, arrays={**checkpoint.arrays, WALKERS: walkers})


def solve_start(spec: JobSpec) -> HartreeFockRecord:
    """The Hartree–Fock start of a run, for its store, so that later attempts use the same one."""
    try:
        found = solve(
            make_system(spec.system),
            by_element(spec.pretrain.basis, spec.system.needs),
            spec.pretrain.method,
            ActiveSpace(*spec.pretrain.active_space) if spec.pretrain.active_space else None,
            spec.ansatz.determinants,
        )
    except HartreeFockError as error:
        raise RunDirError(f"pretrain: {error}; choose another pretrain.basis") from None
    about = f"{found.method.upper()}/{spec.pretrain.basis}: {found.energy:.6f} hartree"
    log.info("Hartree-Fock, %s%s", about, "" if found.is_converged else ", not converged")
    is_half_projected = found.method == "uhf" and spec.pretrain.method == "half-projected"
    if is_half_projected and spec.ansatz.determinants == 1:
        log.warning(ONE_DETERMINANT)
    if found.casscf_energy is not None:
        words = f"{found.casscf_energy:.6f} hartree, {len(found.up)} determinants"
        log.info("CASSCF(%s): %s", ", ".join(map(str, spec.pretrain.active_space)), words)
    attributes = {
        "energy": found.energy,
        "is_converged": found.is_converged,
        "method": found.method,
        "basis": spec.pretrain.basis,
    }
    if found.casscf_energy is not None:
        attributes["casscf_energy"] = found.casscf_energy
    return HartreeFockRecord(attributes, {"up": found.up, "down": found.down})


def recorded_start(spec: JobSpec, store: RunStore | Replica) -> HartreeFock | None:
    """The Hartree–Fock start in a run's store."""
    record = store.hartree_fock()
    if record is None:
        return None
    basis = by_element(record.attributes["basis"], spec.system.needs)
    found = {**record.attributes, "basis": basis}
    return HartreeFock(**found, up=record.orbitals["up"], down=record.orbitals["down"])


def hartree_fock_to_compare(spec: JobSpec) -> HartreeFockRecord | None:
    """Hartree–Fock of a run that does not begin with it: what it comes to is compared with it.

    None where no basis is known, or memory does not do, which is no reason to take fewer walkers.
    """
    try:
        return solve_start(spec)
    except (RunDirError, MemoryError) as error:
        log.info("no Hartree-Fock energy to compare with: %s", str(error) or "out of memory")
        return None


class LateHartreeFock:
    """Hartree–Fock of a run that does not begin with it, once there are rows to compare with it.

    Not before: no step needs it, and to solve it is a good part of a small run's start.
    """

    def __init__(self, spec: JobSpec, store: RunStore | Replica) -> None:
        """Only the first rank has work to do, and only if the store lacks the solution."""
        self._spec, self._store = spec, None
        if isinstance(store, RunStore) and not spec.pretrain.steps:
            self._store = store if store.hartree_fock() is None else None

    def solve(self) -> None:
        """Solve Hartree–Fock and keep the solution, if that is due; later calls do nothing."""
        if self._store is None or not any(self._store.n_committed.values()):
            return
        if record := hartree_fock_to_compare(self._spec):
            self._store.record_hartree_fock(record)
        self._store = None
