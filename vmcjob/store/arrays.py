"""The arrays of a store: their names, columns and rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zarr

from vmcjob.columns import Column
from vmcjob.errors import StoreError
from vmcjob.store.layout import ALWAYS_FINITE, EVERY, OBSERVED, SERIES, array_at, column_of
from vmcjob.store.peek import CURE, arrays_in, has_group, missing_rows

DESCRIPTION = "its description is missing or damaged"


class Arrays:
    """All arrays of an open store except checkpoints, by path, like "train/energy".

    This class does not know how many rows are committed.
    """

    def __init__(self, root: zarr.Group, path: Path) -> None:
        self._root, self._path = root, path
        self._opened: dict[str, zarr.Array] = {}
        self._listed: dict[str, list[str]] = {}

    def names(self, group: str) -> list[str]:
        """The arrays of a group: those on the disk, and those that every store must have."""
        if group not in self._listed:
            required = ("step", *(ALWAYS_FINITE if group in SERIES else ()))
            there = arrays_in(self._path, group)
            self._listed[group] = list(dict.fromkeys((*required, *there)))
        return self._listed[group]

    def columns(self, group: str) -> dict[str, Column]:
        """The columns of a group, without `step`."""
        names = [name for name in self.names(group) if name != "step"]
        return {name: column_of(self._open(f"{group}/{name}")) for name in names}

    @property
    def observe_every(self) -> int | None:
        """Steps of evaluation between two observations; None if nothing is observed."""
        if not has_group(self._path, OBSERVED):
            return None
        every = self._root[OBSERVED].attrs.get(EVERY)
        if not isinstance(every, int) or every < 1:
            raise StoreError(f"{self._path}: {OBSERVED}/zarr.json is damaged")
        return every

    @property
    def planned(self) -> dict[str, int]:
        """Planned number of rows of the two series, and of walker snapshots."""
        names = {"train": "train/step", "evaluate": "evaluate/step", "snapshots": "walkers/step"}
        return {key: self.length(name) for key, name in names.items()}

    def length(self, name: str) -> int:
        """Planned number of rows of an array."""
        return self._open(name).shape[0]

    def read_group(
        self, group: str, length: int, names: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """The first rows of the named arrays of a group; without names, of all arrays."""
        chosen = names or self.names(group)
        return {name: self.read(f"{group}/{name}", length) for name in chosen}

    def read(self, name: str, length: int | None = None) -> np.ndarray:
        """The first `length` rows of an array, or all rows; StoreError if they cannot be read."""
        array = self._open(name)
        length = array.shape[0] if length is None else length
        try:
            values = np.asarray(array[:length])
        except Exception as error:  # damaged bytes can break the decoder in any way
            if isinstance(error, OSError):
                why = error.strerror or str(error)
            else:
                why = self._damage(name, length) or f"{DESCRIPTION}; {CURE}"
            raise StoreError(f"{self._path}: {name} is not readable: {why}") from error
        if len(values) < length:
            raise StoreError(f"{self._path}: {name} has only {len(values)} of {length} rows")
        return values

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """Write rows into an array from row `start` on; StoreError if a chunk there is damaged."""
        try:
            self._open(name)[start : start + len(values)] = values
        except ValueError as error:
            if (why := self._damage(name, start + len(values))) is None:
                raise
            raise StoreError(f"{self._path}: cannot commit: {why}") from error

    def require_rows(self, name: str, length: int) -> None:
        """StoreError if files of an array are lost: Zarr would read NaN in their place."""
        if missing := missing_rows(self._path, name, length):
            raise StoreError(f"{self._path}: {missing}")

    def _open(self, name: str) -> zarr.Array:
        if name not in self._opened:
            try:
                self._opened[name] = array_at(self._root, name)
            except OSError as error:
                why = error.strerror or str(error)
                raise StoreError(f"{self._path}: {name} is not readable: {why}") from error
            except Exception as error:  # as in read
                why = f"{DESCRIPTION}; {CURE}"
                raise StoreError(f"{self._path}: {name} is not readable: {why}") from error
        return self._opened[name]

    def _damage(self, name: str, length: int) -> str | None:
        """The first damaged chunk among the first rows, with the remedy; None if all are intact."""
        array = self._open(name)
        n_rows = next(iter(array.chunks), length)
        for number, start in enumerate(range(0, length, n_rows)):
            end = min(start + n_rows, length)
            try:
                array[start:end]
            except Exception:  # as in read
                return f"rows {start + 1} to {end} are damaged ({name}/c/{number}); {CURE}"
        return None
