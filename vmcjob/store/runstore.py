"""The store of one run: create, open, commit, read; and the order of writing that keeps it whole.

A commit writes the new rows, then the checkpoint slot that is not in use, then in one atomic
replacement the root attributes `n_committed` and `active_slot`. Before that last step a reader sees
nothing of it; after it, all. A crash anywhere leaves the previous commit.
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
    Phase,
    build,
    build_orbitals,
)
from vmcjob.store.peek import ended_early, exists
from vmcjob.store.place import place_of
from vmcjob.store.slot import Checkpoint, SlotContent, SlotDamageError, Slots

# Threads that write at once: they wait for the disk, not for the processor.
WRITERS = 8


class Restored(NamedTuple):
    """A verified checkpoint, and what the user should know if it is not the newest."""

    checkpoint: Checkpoint
    warning: str | None


class RunStore:
    """A run's Zarr store. One process appends; any number read what was committed when they opened.

    Rows that a commit adds follow directly after those of the checkpoint it goes on from.
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
        """Make an empty store that appears at `path` whole or not at all, open for appending."""
        attributes = first_attributes(run_id, spec_text, provenance, ansatz_version)
        try:
            if exists(path):
                raise StoreError(f"{path}: exists already; a store is never overwritten")
            remove_abandoned(path)
            # In a folder of its own: threads of a writer that failed here may still be writing.
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
        """Open a store; with mode "a" its one writer also sweeps what a killed writer left.

        Args:
            path: the store's directory, or where it was before it was archived.
            mode: "r" to read, "a" to append.
            run_id: refuse a store that belongs to another run.
        """
        files = place_of(path, is_writable=mode == "a")
        try:
            root = zarr.open_group(
                files, mode="r+" if mode == "a" else "r", zarr_format=3, use_consolidated=False
            )
        except Exception as error:  # whatever the file holds, it is no Zarr group
            raise StoreError(f"{path}: not a readable Zarr store: {error}") from error
        check_attributes(path, dict(root.attrs), run_id)
        if mode == "a":
            remove_abandoned(path)
        return cls(root, path)

    @property
    def attrs(self) -> dict[str, Any]:  # JSON
        """The root attributes: whose store this is, its spec and provenance, what is committed."""
        state = {
            "n_committed": self.n_committed,
            "active_slot": self._active_slot,
            "rollbacks": list(self._rollbacks),
        }
        return self._attributes | state

    @property
    def n_committed(self) -> dict[str, int]:
        """Rows of "train" and "evaluate", and walker "snapshots", that count."""
        return dict(self._n_committed)

    @property
    def n_planned(self) -> dict[str, int]:
        """Rows of "train" and "evaluate", and walker "snapshots", of the whole run."""
        return self._arrays.planned

    @property
    def n_due(self) -> dict[str, int]:
        """The rows that the run is complete with: fewer evaluation steps than planned may do."""
        return self.n_planned | ended_early(self._attributes)

    @property
    def is_complete(self) -> bool:
        """Whether the evaluation has all rows that are due, from an array that is read anyway."""
        early = ended_early(self._attributes).get("evaluate")
        due = self._arrays.length("evaluate/energy") if early is None else early
        return self._n_committed["evaluate"] >= due

    @property
    def snapshot_steps(self) -> set[int]:
        """Evaluation steps whose walkers are kept: evenly spread, the last one included.

        Of a run that goes on from another, those that are left to do: it has the other's snapshots.
        """
        past = self._attributes["provenance"].get("continues", {"step": 0, "snapshots": 0})
        n_steps = self.n_planned["evaluate"] - past["step"]
        kept = self.n_planned["snapshots"] - past["snapshots"]
        return {past["step"] + n_steps * (k + 1) // kept for k in range(kept)}

    def series(self, phase: Phase, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """The committed rows of one series, `step` included; StoreError if some are missing.

        All columns that the store has, for those of before lack some; or those named that it has.
        """
        length, there = self._n_committed[phase], self._arrays.names(phase)
        wanted = [name for name in names if name in there]
        for name in wanted if names else ALWAYS_FINITE:
            self._arrays.require_rows(f"{phase}/{name}", length)
        if names:
            return {name: self._arrays.read(f"{phase}/{name}", length) for name in wanted}
        return self._arrays.read_group(phase, length)

    def columns(self, group: str) -> dict[str, Column]:
        """What the columns of a series are, `step` left out, or of what is "observe"d."""
        return self._arrays.columns(group)

    @property
    def observe_every(self) -> int | None:
        """Steps of evaluation from one observation to the next; None where nothing is observed."""
        return self._arrays.observe_every

    def observed(self) -> dict[str, np.ndarray]:
        """The committed rows of what is measured now and then, `step` included; {} for nothing."""
        every = self.observe_every
        if every is None:
            return {}
        length = self._n_committed["evaluate"] // every
        for name in self._arrays.names(OBSERVED):
            self._arrays.require_rows(f"{OBSERVED}/{name}", length)
        return self._arrays.read_group(OBSERVED, length)

    def snapshots(self) -> tuple[np.ndarray, np.ndarray]:
        """The evaluate step and the walkers (snapshot, walker, electron, xyz) of each snapshot."""
        length = self._n_committed["snapshots"]
        self._arrays.require_rows("walkers/r", length)
        return self._arrays.read("walkers/step", length), self._arrays.read("walkers/r", length)

    def hartree_fock(self) -> HartreeFockRecord | None:
        """Where the run started, or what it is compared with; None where there is neither."""
        found = check_start(self.path, self._root, self.attrs)
        spins = ("up", "down") if found else ()
        orbitals = {spin: self._arrays.read(f"hartree_fock/{spin}") for spin in spins}
        return HartreeFockRecord(found, orbitals) if found else None

    def record_hartree_fock(self, record: HartreeFockRecord) -> None:
        """Add what a run that did not begin with Hartree–Fock is compared with; whole or not."""
        try:
            build_orbitals(self._root, *record)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot record hartree_fock: {error}") from error

    def checkpoint(self) -> Restored | None:
        """The newest checkpoint that is intact; None where none was ever committed.

        When the newest is damaged, the one in the other slot is returned with a warning, and the
        store goes on from there: `n_committed` becomes what it was at that checkpoint. With both
        damaged it is an error, for to start afresh would bury the run.
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
        """What has sent the run back to its last commit, in its order."""
        return self._rollbacks

    def record_rollback(self, record: Mapping[str, Any]) -> None:
        """Add a JSON object to `rollbacks`; atomic, and on the disk when it returns."""
        rollbacks = [*self._rollbacks, dict(record)]
        self.record("rollbacks", rollbacks)
        self._rollbacks = tuple(rollbacks)

    def record(self, name: str, value: Any) -> None:  # JSON
        """Keep something about the run as an attribute of its own."""
        try:
            self._root.update_attributes({name: value})
        except OSError as error:
            raise StoreError(f"{self.path}: cannot record {name}: {error}") from error
        self._attributes[name] = value

    def commit(self, commit: Commit) -> None:
        """Add rows and a checkpoint; all of it counts from the moment this returns, or none."""
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
            wait(futures)  # all of them, so that nothing still writes after a failure
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
