"""The two checkpoint slots: named arrays in one buffer, each with a checksum."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from vmcjob.store.layout import array_at

# Up to this size a checkpoint is one file; above, it has at most MAX_CHUNKS files.
CHUNK_BYTES = 64 * 2**20
MAX_CHUNKS = 16

# A JSON object from a file that may be damaged, so its values have unknown types.
Record = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The state from which a run continues: phase, steps done in this phase, and named arrays."""

    phase: str
    step: int
    arrays: Mapping[str, np.ndarray]


class SlotContent(NamedTuple):
    """A checkpoint and the committed lengths of the series."""

    checkpoint: Checkpoint
    n_committed: dict[str, int]


class SlotDamageError(Exception):
    """The content of a slot does not match its checksums; the store decides what to do."""


class Slots:
    """The two checkpoint slots of a store; writing one leaves the other unchanged."""

    def __init__(self, root: zarr.Group) -> None:
        self._root = root
        self._buffers: dict[int, zarr.Array] = {}  # as last written by this process

    def write(self, number: int, content: SlotContent) -> None:
        """Fill slot `number`: first the buffer, then the record with its checksums."""
        data, index = _pack(content.checkpoint.arrays)
        buffer = self._buffer(number, data.size)
        if data.size:
            buffer[:] = data
        record = {
            "phase": content.checkpoint.phase,
            "step": content.checkpoint.step,
            "n_committed": content.n_committed,
            "arrays": index,
        }
        buffer.update_attributes({"record": record, "sha256": _digest_of_record(record)})

    def read(self, number: int) -> SlotContent:
        """Content of slot `number` with every byte verified, else `SlotDamageError`."""
        with _damage_reported():
            buffer = array_at(self._root, _name(number))
            record = _verified_record(buffer)
            data = np.asarray(buffer[:])
            arrays = {
                entry["name"]: _unpack(entry, data[entry["offset"] :][: entry["nbytes"]])
                for entry in record["arrays"]
            }
            checkpoint = Checkpoint(record["phase"], record["step"], arrays)
            return SlotContent(checkpoint, dict(record["n_committed"]))

    def read_array(self, number: int, name: str) -> np.ndarray | None:
        """One array of slot `number`, read and verified alone; None if the slot lacks it."""
        with _damage_reported():
            buffer = array_at(self._root, _name(number))
            for entry in _verified_record(buffer)["arrays"]:
                if entry["name"] == name:
                    start = entry["offset"]
                    return _unpack(entry, np.asarray(buffer[start : start + entry["nbytes"]]))
            return None

    def _buffer(self, number: int, nbytes: int) -> zarr.Array:
        """The array of slot `number`, created again if the checkpoint has another size."""
        buffer = self._buffers.get(number)
        if buffer is None or buffer.shape != (nbytes,):
            buffer = self._root.create_array(
                name=_name(number),
                shape=(nbytes,),
                chunks=(max(1, min(nbytes, max(CHUNK_BYTES, -(-nbytes // MAX_CHUNKS)))),),
                dtype="uint8",
                fill_value=0,
                compressors=None,
                dimension_names=["byte"],
                overwrite=True,
            )
            self._buffers[number] = buffer
        return buffer


def _name(number: int) -> str:
    return f"checkpoint/slot{number}"


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn all errors from damaged bytes into a `SlotDamageError`."""
    try:
        yield
    except SlotDamageError:
        raise
    except OSError as error:
        raise SlotDamageError(f"it cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise SlotDamageError("its description is missing or damaged") from error


def _pack(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[Record]]:
    """The bytes of all arrays in one buffer, and an index of their places."""
    index: list[Record] = []
    parts: list[np.ndarray] = []
    offset = 0
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise ValueError(f"checkpoint array {name} has dtype {array.dtype}, not a number")
        part = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        index.append(
            {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "offset": offset,
                "nbytes": part.size,
                "sha256": hashlib.sha256(part.data).hexdigest(),
            }
        )
        parts.append(part)
        offset += part.size
    return np.concatenate([np.empty(0, np.uint8), *parts]), index


def _unpack(entry: Record, data: np.ndarray) -> np.ndarray:
    """The array that `entry` describes, from its bytes; a copy, so that its memory is aligned."""
    if hashlib.sha256(data.data).hexdigest() != entry["sha256"]:
        raise SlotDamageError(f"the checksum of {entry['name']} does not match")
    return np.frombuffer(data.tobytes(), dtype=entry["dtype"]).reshape(entry["shape"]).copy()


def _verified_record(array: zarr.Array) -> Record:
    record: Record = dict(array.attrs)["record"]  # pyright: ignore[reportAssignmentType]
    if _digest_of_record(record) != array.attrs["sha256"]:
        raise SlotDamageError("the checksum of its index does not match")
    return record


def _digest_of_record(record: Record) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
