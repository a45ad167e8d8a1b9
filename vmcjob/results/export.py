"""Export a store as an event file of TensorBoard: numbers by step, and texts about the run.

Event files keep seven digits. They are for viewing; results come from the store.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any  # messages of protobuf

import numpy as np

from vmcjob.columns import Column
from vmcjob.results.optional import load
from vmcjob.store import RunStore
from vmcjob.store.layout import OBSERVED

EVENT_FILE = "events.out.tfevents.0.vmcjob"
"""TensorBoard needs "tfevents" in the name. Always the same, so the next export replaces it."""
EXTRA = "export"
Series = Mapping[str, np.ndarray]


def require_library() -> None:
    """UsageError, with installation advice, if no library can write event files."""
    load("tensorboardX", EXTRA)


def write_events(store: RunStore, texts: Mapping[str, str], started: float, folder: Path) -> None:
    """Write the event file of a run into its own folder.

    Each column with one number per step is a scalar, such as "train/energy". Numbers that are not
    finite are left out.

    Args:
        store: of the run.
        texts: by name, in Markdown.
        started: seconds since the epoch, from which wall times are counted.
        folder: is created if needed; other files in it stay.

    The file appears in one step and replaces an earlier one. OSError if it cannot be written.
    """
    series = _series(store)
    # Not with the library's writer: its thread ends at the first error, and the caller waits for
    # ever.
    records = load("tensorboardX.record_writer", EXTRA)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=".events.", dir=folder) as unfinished:
            file = Path(unfinished, EVENT_FILE)
            writer = records.RecordWriter(str(file))
            try:
                for event in _events(series, texts, started):
                    writer.write(event.SerializeToString())
                writer.flush()
            finally:
                writer.close()
            file.replace(folder / EVENT_FILE)
    except OSError:
        with suppress(OSError):
            folder.rmdir()  # only if it is empty
        raise


def _events(
    series: Mapping[str, Series], texts: Mapping[str, str], started: float
) -> Iterator[Any]:
    """All messages of an event file; the first identifies the format."""
    library, messages, summaries = (
        load(f"tensorboardX{part}", EXTRA)
        for part in ("", ".proto.event_pb2", ".proto.summary_pb2")
    )
    yield messages.Event(wall_time=started, file_version="brain.Event:2")
    for name, text in texts.items():
        yield messages.Event(wall_time=started, step=0, summary=library.summary.text(name, text))
    for group, rows in series.items():
        for step, seconds, numbers in _numbers(group, rows):
            # One event for all numbers of a step needs fewer bytes than one for each.
            values = [
                summaries.Summary.Value(tag=name, simple_value=x) for name, x in numbers.items()
            ]
            summary = summaries.Summary(value=values)
            yield messages.Event(wall_time=started + seconds, step=step, summary=summary)


def _series(store: RunStore) -> dict[str, Series]:
    """All series of a store without array columns; StoreError if rows are lost."""
    found: dict[str, Series] = {
        "train": store.series("train"),
        "evaluate": store.series("evaluate"),
    }
    if observed := store.observed():
        found[OBSERVED] = observed
    return {group: _scalars(rows, store.columns(group)) for group, rows in found.items()}


def _scalars(rows: Series, columns: Mapping[str, Column]) -> Series:
    return {name: rows[name] for name in rows if name == "step" or not columns[name].axes}


def _numbers(group: str, rows: Series) -> Iterator[tuple[int, float, dict[str, float]]]:
    """For each row: step, seconds since the run began, and numbers by tag."""
    names = [name for name in rows if name != "step"]
    clock = rows.get("wall_time", np.zeros(len(rows["step"])))
    lines = zip(*(rows[name].tolist() for name in names), strict=True)
    for step, seconds, line in zip(rows["step"].tolist(), clock.tolist(), lines, strict=True):
        numbers = zip(names, line, strict=True)
        yield step, seconds, {f"{group}/{name}": x for name, x in numbers if math.isfinite(x)}
