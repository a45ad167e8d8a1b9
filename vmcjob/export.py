"""A store as an event file of TensorBoard: its numbers by step, and what they are of as text.

Event files keep seven digits. They are to be looked at; results come from the store.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from vmcjob.columns import Column
from vmcjob.optional import load
from vmcjob.store import RunStore
from vmcjob.store.layout import OBSERVED

EVENT_FILE = "events.out.tfevents.0.vmcjob"
"""TensorBoard knows one by "tfevents"; always the same, so that the next export replaces it."""
EXTRA = "export"
Series = Mapping[str, np.ndarray]


def require_library() -> None:
    """UsageError, which says how to get it, where there is none that writes event files."""
    load("tensorboardX", EXTRA)


def write_events(store: RunStore, texts: Mapping[str, str], started: float, folder: Path) -> None:
    """Write the event file of a run in a folder of its own.

    Every column that has one number at a step is a scalar, "train/energy" and so on; rows in which
    it is not finite are left out.

    Args:
        store: of the run.
        texts: by name, in Markdown.
        started: seconds since the epoch, from which wall times are counted.
        folder: is made; what else is in it stays.

    The file appears whole, in place of one of before. OSError where it cannot be written.
    """
    series = _series(store)
    library, messages = (load(f"tensorboardX{part}", EXTRA) for part in ("", ".proto.summary_pb2"))
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".events.", dir=folder) as unfinished:
        writer = library.FileWriter(unfinished)
        for name, text in texts.items():
            writer.add_summary(library.summary.text(name, text), 0, started)
        for group, rows in series.items():
            for step, seconds, numbers in _events(group, rows):
                # One event for all numbers of a step: fewer bytes than one for each.
                values = [
                    messages.Summary.Value(tag=name, simple_value=x) for name, x in numbers.items()
                ]
                writer.add_summary(messages.Summary(value=values), step, started + seconds)
        writer.close()
        (file,) = Path(unfinished).iterdir()
        file.replace(folder / EVENT_FILE)


def _series(store: RunStore) -> dict[str, Series]:
    """All series of a store, without the columns that are arrays; StoreError if rows are lost."""
    found: dict[str, Series] = {
        "train": store.series("train"),
        "evaluate": store.series("evaluate"),
    }
    if observed := store.observed():
        found[OBSERVED] = observed
    return {group: _scalars(rows, store.columns(group)) for group, rows in found.items()}


def _scalars(rows: Series, columns: Mapping[str, Column]) -> Series:
    return {name: rows[name] for name in rows if name == "step" or not columns[name].axes}


def _events(group: str, rows: Series) -> Iterator[tuple[int, float, dict[str, float]]]:
    """The step of each row, the seconds since the run began, and its numbers by tag."""
    names = [name for name in rows if name != "step"]
    clock = rows.get("wall_time", np.zeros(len(rows["step"])))
    lines = zip(*(rows[name].tolist() for name in names), strict=True)
    for step, seconds, line in zip(rows["step"].tolist(), clock.tolist(), lines, strict=True):
        numbers = zip(names, line, strict=True)
        yield step, seconds, {f"{group}/{name}": x for name, x in numbers if math.isfinite(x)}
