"""The store of one run: create, open, commit, read; and the order of writing that keeps it whole.

A commit writes the new rows, then the checkpoint slot that is not in use, then in one atomic
replacement the root attributes `n_committed` and `active_slot`. Before that last step a reader sees
nothing of it; after it, all. A crash anywhere leaves the previous commit.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from uuid import uuid4

import numpy as np
import zarr
from zarr.storage import LocalStore

from vmcjob.columns import Column
from vmcjob.errors import StoreError
from vmcjob.store.attributes import check_attributes, sha256
from vmcjob.store.durable import DurableStore, partial_folder, remove_abandoned, sync_folder
from vmcjob.store.layout import (
    ALWAYS_FINITE,
    EVERY,
    OBSERVED,
    SCHEMA_VERSION,
    SERIES,
    UNITS,
    HartreeFockRecord,
    Layout,
    Phase,
    array_at,
    build,
    build_orbitals,
    column_of,
    common_length,
)
from vmcjob.store.peek import missing_rows
from vmcjob.store.slot import (
    Checkpoint,
    SlotContent,
    SlotDamageError,
    Slots,
)

# Threads that write at once: they wait for the disk, not for the processor.
WRITERS = 8


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What one commit adds: rows of the two series, walker snapshots, and where to go on from."""

    checkpoint: Checkpoint
    train: Mapping[str, np.ndarray] | None = None
    evaluate: Mapping[str, np.ndarray] | None = None
    observed: Mapping[str, np.ndarray] | None = None  # of those steps of evaluation that are due
    snapshots: Sequence[tuple[int, np.ndarray]] = ()  # (evaluate step, r[walker, electron, 3])


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
        self._arrays: dict[str, zarr.Array] = {}
        self._listed: dict[str, list[str]] = {}
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
        attributes = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "spec": spec_text,
            "spec_sha256": sha256(spec_text),
            "provenance": dict(provenance),
            "units": UNITS,
            "n_committed": {"train": 0, "evaluate": 0, "snapshots": 0},
            "active_slot": None,
            "rollbacks": [],
            "ansatz_version": ansatz_version,
        }
        try:
            if path.exists():
                raise StoreError(f"{path}: exists already; a store is never overwritten")
            remove_abandoned(path)
            # In a folder of its own: threads of a writer that failed here may still be writing.
            unfinished = partial_folder(path) / uuid4().hex / path.name
            unfinished.mkdir(parents=True)
            files = DurableStore(unfinished)
            root = zarr.create_group(files, zarr_format=3, attributes=attributes)
            build(root, layout)
            if hartree_fock:
                build_orbitals(root, hartree_fock.attributes, hartree_fock.orbitals)
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
            path: the store's directory.
            mode: "r" to read, "a" to append.
            run_id: refuse a store that belongs to another run.
        """
        if not os.path.isdir(path):  # unlike Path.is_dir, no error without permission
            raise StoreError(f"{path}: there is no store")
        files = DurableStore(path) if mode == "a" else LocalStore(path, read_only=True)
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
        names = {"train": "train/step", "evaluate": "evaluate/step", "snapshots": "walkers/step"}
        return {key: self._array(name).shape[0] for key, name in names.items()}

    @property
    def snapshot_steps(self) -> set[int]:
        """Evaluation steps whose walkers are kept: evenly spread, the last one included.

        Of a run that goes on from another, those that are left to do: it has the other's snapshots.
        """
        past = self._attributes["provenance"].get("continues", {"step": 0, "snapshots": 0})
        n_steps = self.n_planned["evaluate"] - past["step"]
        kept = self.n_planned["snapshots"] - past["snapshots"]
        return {past["step"] + n_steps * (k + 1) // kept for k in range(kept)}

    def series(self, phase: Phase) -> dict[str, np.ndarray]:
        """The committed rows of one series, `step` included; StoreError if some are missing.

        All columns that the store has: those of before lack some.
        """
        length = self._n_committed[phase]
        for name in ALWAYS_FINITE:
            self._require_rows(f"{phase}/{name}", length)
        return {name: self._read(f"{phase}/{name}", length) for name in self._names(phase)}

    def columns(self, group: str) -> dict[str, Column]:
        """What the columns of a series are, `step` left out, or of what is "observe"d."""
        names = [name for name in self._names(group) if name != "step"]
        return {name: column_of(self._array(f"{group}/{name}")) for name in names}

    @property
    def observe_every(self) -> int | None:
        """Steps of evaluation from one observation to the next; None where nothing is observed."""
        if not (self.path / OBSERVED / "zarr.json").exists():
            return None
        every = self._root[OBSERVED].attrs.get(EVERY)
        if not isinstance(every, int) or every < 1:
            raise StoreError(f"{self.path}: {OBSERVED}/zarr.json is damaged")
        return every

    def observed(self) -> dict[str, np.ndarray]:
        """The committed rows of what is measured now and then, `step` included; {} for nothing."""
        every = self.observe_every
        if every is None:
            return {}
        length = self._n_committed["evaluate"] // every
        names = self._names(OBSERVED)
        for name in names:
            self._require_rows(f"{OBSERVED}/{name}", length)
        return {name: self._read(f"{OBSERVED}/{name}", length) for name in names}

    def snapshots(self) -> tuple[np.ndarray, np.ndarray]:
        """The evaluate step and the walkers (snapshot, walker, electron, xyz) of each snapshot."""
        length = self._n_committed["snapshots"]
        self._require_rows("walkers/r", length)
        return self._read("walkers/step", length), self._read("walkers/r", length)

    def hartree_fock(self) -> HartreeFockRecord | None:
        """The Hartree–Fock start of the run; None where it had none."""
        if "hartree_fock" not in self._root:
            return None
        orbitals = {spin: self._read(f"hartree_fock/{spin}") for spin in ("up", "down")}
        return HartreeFockRecord(dict(self._root["hartree_fock"].attrs), orbitals)

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
            raise StoreError(
                f"{self.path}: checkpoint slot {self._active_slot}: {error}"
            ) from error
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
        writes, n_committed = self._plan(commit)
        slot = 0 if self._active_slot is None else 1 - self._active_slot
        try:
            futures = [self._writers.submit(write) for write in writes]
            wait(futures)  # all of them, so that nothing still writes after a failure
            for future in futures:
                future.result()
            self._slots.write(slot, SlotContent(commit.checkpoint, n_committed))
            self._root.update_attributes({"n_committed": n_committed, "active_slot": slot})
        except (OSError, ValueError) as error:  # a full disk; a damaged chunk to be extended
            raise StoreError(f"{self.path}: cannot commit: {error}") from error
        self._n_committed, self._active_slot = n_committed, slot
        remove_abandoned(self.path)

    def _plan(self, commit: Commit) -> tuple[list[Callable[[], None]], dict[str, int]]:
        """The writes of a commit's rows, none done yet, and the lengths they lead to."""
        columns: dict[str, np.ndarray] = {}
        n_committed = self.n_committed
        series: dict[Phase, Mapping[str, np.ndarray] | None]
        series = {"train": commit.train, "evaluate": commit.evaluate}
        for phase, rows in series.items():
            if rows:
                columns |= self._by_path(phase, rows)
                n_committed[phase] += common_length(phase, rows)
        if self.observe_every:
            columns |= self._observations(commit.observed or {}, n_committed["evaluate"])
        if commit.snapshots:
            steps, r = zip(*commit.snapshots, strict=True)
            columns |= {"walkers/step": np.asarray(steps), "walkers/r": np.stack(r)}
            n_committed["snapshots"] += len(steps)
        planned = self.n_planned
        beyond = [key for key, length in n_committed.items() if length > planned[key]]
        if beyond:
            raise ValueError(f"commit beyond the planned length of {', '.join(beyond)}")
        return [partial(self._write, name, values) for name, values in columns.items()], n_committed

    def _by_path(self, group: str, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rows under the paths of their arrays, but those for which this store has none."""
        names = set(self._names(group)) - {"step"}
        if missing := names - rows.keys():
            raise ValueError(f"{group} rows lack {sorted(missing)}, which the store has")
        return {f"{group}/{name}": rows[name] for name in rows if name in names}

    def _observations(
        self, rows: Mapping[str, np.ndarray], n_evaluate: int
    ) -> dict[str, np.ndarray]:
        """Rows of what is observed, as many as are due up to a step of evaluation."""
        due = n_evaluate // (self.observe_every or 1) - self._start(OBSERVED)
        if (common_length(OBSERVED, rows) if rows else 0) != due:
            raise ValueError(f"{due} observations are due at evaluate step {n_evaluate}")
        return self._by_path(OBSERVED, rows) if rows else {}

    def _names(self, group: str) -> list[str]:
        """The arrays of a group, as they lie on the disk."""
        if group not in self._listed:
            there = sorted(path.parent.name for path in (self.path / group).glob("*/zarr.json"))
            required = ("step", *(ALWAYS_FINITE if group in SERIES else ()))
            self._listed[group] = list(dict.fromkeys((*required, *there)))
        return self._listed[group]

    def _start(self, group: str) -> int:
        """The row of a group that the next commit begins with."""
        if group == OBSERVED:
            return self._n_committed["evaluate"] // (self.observe_every or 1)
        return self._n_committed["snapshots" if group == "walkers" else group]

    def _write(self, name: str, values: np.ndarray) -> None:
        start = self._start(name.split("/")[0])
        self._array(name)[start : start + len(values)] = values

    def _require_rows(self, name: str, length: int) -> None:
        """StoreError if files of an array have been lost: Zarr would read NaN in their place."""
        if missing := missing_rows(self.path, name, length):
            raise StoreError(f"{self.path}: {missing}")

    def _read(self, name: str, length: int | None = None) -> np.ndarray:
        array = self._array(name)
        length = array.shape[0] if length is None else length
        try:
            values = np.asarray(array[:length])
        except Exception as error:  # damaged bytes can break the decoder in any way
            raise StoreError(f"{self.path}: {name} is not readable: {error}") from error
        if len(values) < length:
            raise StoreError(f"{self.path}: {name} has only {len(values)} of {length} rows")
        return values

    def _array(self, name: str) -> zarr.Array:
        if name not in self._arrays:
            try:
                self._arrays[name] = array_at(self._root, name)
            except Exception as error:  # as in _read
                raise StoreError(f"{self.path}: {name} is not readable: {error}") from error
        return self._arrays[name]

    def _warning(self, damage: Mapping[int, str], checkpoint: Checkpoint) -> str | None:
        if not damage:
            return None
        problems = "; ".join(f"slot {number} is damaged ({why})" for number, why in damage.items())
        return (
            f"{self.path}: checkpoint {problems}; "
            f"going on from the other one, {checkpoint.phase} step {checkpoint.step}"
        )
