"""The store of one run: create, open, commit, read. The order of writing keeps it consistent.

A commit writes the new rows, then the unused checkpoint slot, and last the root attributes
`n_committed` and `active_slot` in one atomic replacement. Before this last step a reader sees
nothing of the commit, afterwards all of it. A crash at any point leaves the previous commit.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from uuid import uuid4

import numpy as np
import zarr

from vmcjob.columns import Column
from vmcjob.errors import StoreError
from vmcjob.store.arrays import Arrays
from vmcjob.store.attributes import check_attributes, check_start, first_attributes
from vmcjob.store.commit import Commit, first_row, rows_of
from vmcjob.store.durable import DurableStore, partial_folder, remove_abandoned, sync_folder
from vmcjob.store.layout import (
    ALWAYS_FINITE,
    OBSERVED,
    HartreeFockRecord,
    Layout,
    SeriesName,
    build,
    build_orbitals,
)
from vmcjob.store.peek import ended_early, exists
from vmcjob.store.place import place_of
from vmcjob.store.slot import Checkpoint, SlotContent, SlotDamageError, Slots

# Threads that write in parallel: they wait for the disk, not for the processor.
WRITERS = 8


class Restored(NamedTuple):
    """A verified checkpoint, and a warning for the user if it is not the newest."""

    checkpoint: Checkpoint
    warning: str | None


class RunStore:
    """A run's Zarr store. One process appends; readers see the state at the time they opened it.

    The rows of a commit follow directly after those of the checkpoint that the run continued from.
    """

    def __init__(self, root: zarr.Group, path: Path) -> None:
        """Wrap an open root group; use `create` or `open`."""
        self.path = path
        self._root = root
        self._attributes: dict[str, Any] = dict(root.attrs)  # JSON
        self._n_committed: dict[str, int] = self._attributes["n_committed"]
        self._active_slot: int | None = self._attributes["active_slot"]
        self._rollbacks: tuple[Mapping[str, Any], ...] = tuple(
            self._attributes.get("rollbacks", ())
        )
        self._slots = Slots(root)
        self._arrays = Arrays(root, path)
        self._writers = ThreadPoolExecutor(WRITERS)  # starts no thread before the first commit

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        run_id: str,
        spec_text: str,
        provenance: Mapping[str, object],
        layout: Layout,
        hartree_fock: HartreeFockRecord | None = None,
        ansatz_version: int = 1,
    ) -> Self:
        """Make an empty store, open for appending; it appears at `path` complete or not at all."""
        attributes = first_attributes(run_id, spec_text, provenance, ansatz_version)
        try:
            if exists(path):
                raise StoreError(f"{path}: exists already; a store is never overwritten")
            remove_abandoned(path)
            # A new folder, because threads of a failed writer may still be writing.
            unfinished = partial_folder(path) / uuid4().hex / path.name
            unfinished.mkdir(parents=True)
            files = DurableStore(unfinished)
            root = zarr.create_group(files, zarr_format=3, attributes=attributes)
            build(root, layout)
            if hartree_fock:
                build_orbitals(root, *hartree_fock)
            unfinished.rename(path)
            sync_folder(path.parent)
            remove_abandoned(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot create the store: {error}") from error
        return cls.open(path, "a")

    @classmethod
    def open(cls, path: Path, mode: Literal["r", "a"] = "r", *, run_id: str | None = None) -> Self:
        """Open a store; with mode "a", also remove unfinished files of a killed writer.

        Args:
            path: the store's directory, or its former place if the store is archived.
            mode: "r" to read, "a" to append.
            run_id: refuse a store that belongs to another run.
        """
        files = place_of(path, is_writable=mode == "a")
        try:
            root = zarr.open_group(
                files, mode="r+" if mode == "a" else "r", zarr_format=3, use_consolidated=False
            )
        except Exception as error:  # any error means that this is no Zarr group
            raise StoreError(f"{path}: not a readable Zarr store: {error}") from error
        check_attributes(path, dict(root.attrs), run_id)
        if mode == "a":
            remove_abandoned(path)
        return cls(root, path)

    @property
    def attrs(self) -> dict[str, Any]:  # JSON
        """The root attributes: run id, spec, provenance, and committed state."""
        state = {
            "n_committed": self.n_committed,
            "active_slot": self._active_slot,
            "rollbacks": list(self._rollbacks),
        }
        return self._attributes | state

    @property
    def n_committed(self) -> dict[str, int]:
        """Committed rows of "train" and "evaluate", and committed walker "snapshots"."""
        return dict(self._n_committed)

    @property
    def n_planned(self) -> dict[str, int]:
        """Planned rows of "train" and "evaluate", and planned walker "snapshots"."""
        return self._arrays.planned

    @property
    def n_due(self) -> dict[str, int]:
        """The rows of the complete run; fewer than planned if a target was reached earlier."""
        return self.n_planned | ended_early(self._attributes)

    @property
    def is_complete(self) -> bool:
        """Whether the evaluation is complete; reads an array that is needed anyway."""
        early = ended_early(self._attributes).get("evaluate")
        due = self._arrays.length("evaluate/energy") if early is None else early
        return self._n_committed["evaluate"] >= due

    @property
    def snapshot_steps(self) -> set[int]:
        """Evaluation steps whose walkers are kept: evenly spread, the last step included.

        If the run continues another, only the later steps: the other run's snapshots are copied.
        """
        past = self._attributes["provenance"].get("continues", {"step": 0, "snapshots": 0})
        n_steps = self.n_planned["evaluate"] - past["step"]
        kept = self.n_planned["snapshots"] - past["snapshots"]
        return {past["step"] + n_steps * (k + 1) // kept for k in range(kept)}

    def series(self, phase: SeriesName, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """The committed rows of one series, `step` included; StoreError if some are missing.

        By default all columns of the store (older stores lack some), else those of `names` that
        exist.
        """
        length, there = self._n_committed[phase], self._arrays.names(phase)
        wanted = [name for name in names if name in there]
        for name in [n for n in ALWAYS_FINITE if n in wanted or not names]:
            self._arrays.require_rows(f"{phase}/{name}", length)
        if names:
            return {name: self._arrays.read(f"{phase}/{name}", length) for name in wanted}
        return self._arrays.read_group(phase, length)

    def columns(self, group: str) -> dict[str, Column]:
        """The columns of a series, or of the group "observe", without `step`."""
        return self._arrays.columns(group)

    @property
    def observe_every(self) -> int | None:
        """Steps of evaluation between two observations; None if nothing is observed."""
        return self._arrays.observe_every

    def observed(self, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Committed rows of all observables, and `step`, or of `names`; {} if not all are there."""
        every = self.observe_every
        if every is None or not set(names) <= set(there := self._arrays.names(OBSERVED)):
            return {}
        length = self._n_committed["evaluate"] // every
        for name in names or there:
            self._arrays.require_rows(f"{OBSERVED}/{name}", length)
        return self._arrays.read_group(OBSERVED, length, names)

    def snapshots(self) -> tuple[np.ndarray, np.ndarray]:
        """Evaluation steps and walkers (snapshot, walker, electron, xyz) of all snapshots."""
        length = self._n_committed["snapshots"]
        self._arrays.require_rows("walkers/r", length)
        return self._arrays.read("walkers/step", length), self._arrays.read("walkers/r", length)

    def hartree_fock(self) -> HartreeFockRecord | None:
        """The Hartree–Fock solution to start from or to compare with; None without one."""
        found = check_start(self.path, self._root, self.attrs)
        spins = ("up", "down") if found else ()
        orbitals = {spin: self._arrays.read(f"hartree_fock/{spin}") for spin in spins}
        return HartreeFockRecord(found, orbitals) if found else None

    def record_hartree_fock(self, record: HartreeFockRecord) -> None:
        """Add, atomically, the Hartree–Fock solution with which the run is compared."""
        try:
            build_orbitals(self._root, *record)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot record hartree_fock: {error}") from error

    def checkpoint(self) -> Restored | None:
        """The newest intact checkpoint; None if none was ever committed.

        If the newest one is damaged, the other slot is returned with a warning, and `n_committed`
        is set to its value at that checkpoint. If both are damaged, StoreError: a new start would
        hide the run.
        """
        if self._active_slot is None:
            return None
        damage: dict[int, str] = {}
        for number in (self._active_slot, 1 - self._active_slot):
            try:
                content = self._slots.read(number)
            except SlotDamageError as error:
                damage[number] = str(error)
                continue
            self._active_slot, self._n_committed = number, content.n_committed
            return Restored(content.checkpoint, self._warning(damage, content.checkpoint))
        problems = "; ".join(f"slot {number}: {reason}" for number, reason in damage.items())
        raise StoreError(f"{self.path}: no checkpoint is readable ({problems})")

    def read_array(self, name: str) -> np.ndarray:
        """One array of the active checkpoint, such as a parameter, without reading the others."""
        if self._active_slot is None:
            raise StoreError(f"{self.path}: there is no checkpoint yet")
        try:
            array = self._slots.read_array(self._active_slot, name)
        except SlotDamageError as error:
            reason = f"checkpoint slot {self._active_slot}: {error}"
            raise StoreError(f"{self.path}: {reason}") from error
        if array is None:
            raise StoreError(f"{self.path}: the checkpoint has no array {name!r}")
        return array

    @property
    def rollbacks(self) -> tuple[Mapping[str, Any], ...]:  # JSON
        """The records of all rollbacks, in order."""
        return self._rollbacks

    def record_rollback(self, record: Mapping[str, Any]) -> None:
        """Add a JSON object to `rollbacks`, atomically and synced to the disk."""
        rollbacks = [*self._rollbacks, dict(record)]
        self.record("rollbacks", rollbacks)
        self._rollbacks = tuple(rollbacks)

    def record(self, name: str, value: Any) -> None:  # JSON
        """Store a value about the run as a root attribute."""
        try:
            self._root.update_attributes({name: value})
        except OSError as error:
            raise StoreError(f"{self.path}: cannot record {name}: {error}") from error
        self._attributes[name] = value

    def commit(self, commit: Commit) -> None:
        """Add rows and a checkpoint, all or nothing; committed when this function returns."""
        before = self._n_committed
        rows, n_committed = rows_of(commit, self._arrays, before)
        slot = 0 if self._active_slot is None else 1 - self._active_slot
        try:
            futures = [
                self._writers.submit(
                    self._arrays.write, name, first_row(name, self._arrays, before), values
                )
                for name, values in rows.items()
            ]
            wait(futures)  # wait for all, so that no thread still writes after a failure
            for future in futures:
                future.result()
            self._slots.write(slot, SlotContent(commit.checkpoint, n_committed))
            self._root.update_attributes({"n_committed": n_committed, "active_slot": slot})
        except (OSError, ValueError) as error:  # a full disk; a damaged chunk to be extended
            raise StoreError(f"{self.path}: cannot commit: {error}") from error
        self._n_committed, self._active_slot = n_committed, slot
        remove_abandoned(self.path)

    def _warning(self, damage: Mapping[int, str], checkpoint: Checkpoint) -> str | None:
        if not damage:
            return None
        problems = "; ".join(f"slot {number} is damaged ({why})" for number, why in damage.items())
        return (
            f"{self.path}: checkpoint {problems}; "
            f"going on from the other one, {checkpoint.phase} step {checkpoint.step}"
        )
