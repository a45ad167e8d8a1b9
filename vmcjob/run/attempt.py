"""What an attempt does between its start and its end: read the spec, open the store, work."""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from vmcjob.errors import RunDirError, StoreError, UsageError
from vmcjob.observables import columns_of
from vmcjob.observables.forces import COLUMNS as OF_FORCES
from vmcjob.observables.forces import doubts
from vmcjob.protocol.rank import Rank
from vmcjob.run.ahead import Steps
from vmcjob.run.calculation import build, configure_jax, describe_blocks, subject_of
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.run.optimizer import COLUMNS
from vmcjob.run.poles import ANSATZ_VERSION, refuse_poles
from vmcjob.run.progress import steps_of
from vmcjob.run.replica import Replica, share
from vmcjob.run.start import LateHartreeFock, read_start, recorded_start, solve_start
from vmcjob.run.stop import StopRequest
from vmcjob.run.surroundings import device_names, provenance
from vmcjob.run.worker import Worker
from vmcjob.rundir import RunDir
from vmcjob.spec import JobSpec, load_resolved, science_sha256
from vmcjob.stats import compare_walkers, estimate
from vmcjob.store import Checkpoint, Layout, RunStore, peek
from vmcjob.verdict.evidence import read_walkers
from vmcjob.verdict.judgement import CONVERGED, About, explain, judge, verdict_of
from vmcjob.vmc import devices, ranks
from vmcjob.vmc.contracts import LoopState

log = logging.getLogger("vmcjob")


def join(rank: Rank) -> None:
    """Meet the other ranks, if there are any; before JAX is asked for anything else."""
    if rank.is_alone or rank.coordinator is None:
        return
    log.info("rank %d of %d meets the others at %s", rank.index, rank.count, rank.coordinator)
    try:
        ranks.join(rank.coordinator, rank.count, rank.index)
    except ranks.UnevenRanksError as error:
        raise UsageError(f"{error}; ask for nodes that are alike") from None


def attempt(run_dir: RunDir, stop: StopRequest, heartbeat: HeartbeatWriter) -> str:
    """Take the run to its end; what is to be told of it, if anything.

    Raises what `Worker.run` raises, and errors meant for the user.
    """
    spec = read_own_spec(run_dir)
    configure_jax(spec.numerics)
    start = read_start(run_dir, spec)
    steps = None if peek.exists(run_dir.store_path) else _begin_steps(spec)
    store = share(_open_store(run_dir, spec, start) if ranks.is_first() else None)
    fitted = recorded_start(spec, store) if spec.pretrain.steps else None
    make_calculation = partial(build, start=fitted)
    arrays = start and start.arrays
    late = LateHartreeFock(spec, store)
    worker = Worker(spec, make_calculation, store, stop, heartbeat, arrays, steps, late.solve)
    for line in describe_blocks(worker.calculation):
        log.info("%s", line)
    if worker.warning:
        log.warning(worker.warning)
    log.info("%s on %s, from %s", run_dir.path.name, device_names(), worker.standing)
    found = worker.run()
    _record_walkers(store, worker.position.state)
    late.solve()  # if an attempt died before it could
    said = [] if found is None else [str(found)]
    if isinstance(store, RunStore) and (words := _verdict(store, spec, run_dir.path.name)):
        said.append(words)
    return "; ".join(said)


def _begin_steps(spec: JobSpec) -> Steps:
    """The steps of a new run; the training step is compiled while Hartree–Fock is solved."""
    planned = {phase for phase, n_steps in steps_of(spec).items() if n_steps}
    return Steps.before_all(build(spec), planned)


def _verdict(store: RunStore, spec: JobSpec, run_id: str) -> str:
    """The verdict of a finished run as `aggregate` has it, with reasons; empty if converged."""
    train, evaluate = (store.series(phase) for phase in ("train", "evaluate"))
    energy = estimate(evaluate["energy"], variance=evaluate["variance"])
    if energy.n == 0:
        return ""
    if not math.isfinite(energy.error):
        return f"suspect: {energy.why}"
    start = store.hartree_fock()
    hartree_fock = start.attributes["energy"] if start else None
    spins = spec.system.n_up, spec.system.n_down
    walkers = read_walkers(store.attrs.get(peek.WALKERS))
    forces: Mapping[str, np.ndarray] = {}
    with suppress(StoreError):  # where rows of forces are lost, the energy is not
        forces = store.observed(OF_FORCES)
    about = About(hartree_fock, spec.sampler.walkers, spins, walkers, tuple(doubts(forces)))
    judged = [judge(train, evaluate, energy, about)]
    verdict = verdict_of(energy, judged)
    if verdict == CONVERGED:
        return ""
    return f"{verdict}: {explain(energy, judged, [spec.seed], [run_id])}"


def _record_walkers(store: RunStore | Replica, state: LoopState) -> None:
    """Keep how walkers differed over the evaluation; all ranks take part."""
    if state.chain.tally is None:
        return
    found = compare_walkers(devices.gather(state.chain.tally))
    if not found or not isinstance(store, RunStore):
        return
    if store.attrs.get(peek.WALKERS) != found._asdict():  # a finished run stays as it is
        store.record(peek.WALKERS, found._asdict())


def read_own_spec(run_dir: RunDir) -> JobSpec:
    """The run's spec; RunDirError if it is not the one that the run is named after."""
    spec = load_resolved(run_dir.read_spec_text(), str(run_dir.spec_path))
    record = run_dir.read_record()
    if (science_sha256(spec), spec.seed) != (record.science_sha256, record.seed):
        raise RunDirError(
            f"{run_dir.spec_path}: asks for other numbers than the run was made for (by vmcjob "
            f"{record.vmcjob_version}); restore the file, or submit the new spec: it is another run"
        )
    return spec


def _open_store(run_dir: RunDir, spec: JobSpec, start: Checkpoint | None) -> RunStore:
    """The run's store, made if this is the first attempt."""
    run_id = run_dir.read_record().run_id
    if peek.exists(run_dir.store_path):
        return _adopted(RunStore.open(run_dir.store_path, "a", run_id=run_id))
    layout = Layout(
        n_train=spec.train.steps,
        n_evaluate=spec.evaluate.steps,
        n_walkers=spec.sampler.walkers,
        n_electrons=spec.system.n_electrons,
        n_snapshots=min(spec.output.snapshots, spec.evaluate.steps),
        dtype=spec.numerics.dtype,
        more_train=COLUMNS[type(spec.optimizer)],
        observed=columns_of(spec.evaluate.observables, subject_of(spec.system)),
        observe_every=spec.evaluate.observe_every,
    )
    return RunStore.create(
        run_dir.store_path,
        run_id=run_id,
        spec_text=run_dir.read_spec_text(),
        provenance=provenance(spec, start),
        layout=layout,
        ansatz_version=ANSATZ_VERSION,
        hartree_fock=solve_start(spec) if spec.pretrain.steps else None,
    )


def _adopted(store: RunStore) -> RunStore:
    """A store as this release goes on from it; StoreError if its wave function has a pole."""
    if store.attrs.get("ansatz_version", 1) < ANSATZ_VERSION:
        if restored := store.checkpoint():
            refuse_poles(restored.checkpoint.arrays)
        store.record("ansatz_version", ANSATZ_VERSION)
    return store
