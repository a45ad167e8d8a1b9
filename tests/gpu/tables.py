"""Tables in Markdown from the files of `python -m tests.gpu.check`.

python -m tests.gpu.tables gpu-check
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.check import LEFT
from vmcjob.results.units import format_energy

MILLI, MEBI = 1e3, 2**20
# Operations per second in float32 without tensor cores, by the vendor's data sheets.
PEAKS = {"H100 PCIe": 51e12, "H100": 67e12, "H200": 67e12, "A100": 19.5e12, "L40S": 91.6e12}

Document = Mapping[str, Any]  # of JSON


def read(folder: Path) -> dict[str, Document]:
    """The documents of a check by the names of its parts."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != LEFT]
    return {path.stem: json.loads(path.read_text()) for path in paths}


def render(documents: Mapping[str, Document], left: Mapping[str, str]) -> str:
    """All tables of the parts that were done, and the reasons of those that were not."""
    lines = [*_cards(documents.values()), *_energies(documents), *_steps(documents)]
    lines += [*_laplacians(documents), *_runs(documents)]
    lines += [f"- `{name}`: {reason}" for name, reason in left.items()]
    return "\n".join(lines) + "\n"


def _cards(documents: Iterable[Document]) -> Iterator[str]:
    """A sentence for each card and set of versions."""
    seen: dict[str, None] = {}
    for one in documents:
        versions = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        tiny = " Everything was tiny: the numbers mean nothing." if one["is_tiny"] else ""
        seen[f"{one['card']}; {versions}.{tiny}"] = None
    yield from seen


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with an empty line before it; nothing without rows."""
    if rows:
        yield ""
        for cells in (head, ["---"] * len(head), *rows):
            yield "| " + " | ".join(cells) + " |"
        yield ""


def _of(documents: Mapping[str, Document], part: str) -> Iterator[Document]:
    return (one for one in documents.values() if one["part"] == part)


def _energies(documents: Mapping[str, Document]) -> Iterator[str]:
    rows = []
    for one in _of(documents, "jobs.energy"):
        found = one["found"]
        off = format_energy(MILLI * (found["energy"] - found["reference"]), MILLI * found["error"])
        cells = [format_energy(found["energy"], found["error"]), off, found["verdict"]]
        rows.append([*one["arguments"], *cells, f"{found['seconds']:.0f}"])
    head = ["molecule", "energy, hartree", "off the exact one, mHa", "verdict", "seconds"]
    yield from _table(head, rows)


def _steps(documents: Mapping[str, Document]) -> Iterator[str]:
    accounts = {tuple(x["arguments"]): x["found"] for x in _of(documents, "measure.account")}
    rows = []
    for one in _of(documents, "measure.step"):
        found, account = one["found"], accounts.get(tuple(one["arguments"]), {})
        if "refused" in found:
            rows.append([*one["arguments"], found["refused"], *[""] * 5])
            continue
        given, temporary = (account.get(f"{name}_bytes") for name in ("given", "temporary"))
        by_xla = None if given is None or temporary is None else given + temporary
        share = _share(one["card"], account.get("operations"), found["step_s"])
        cells = [f"{found['walkers']}", f"{MILLI * found['step_s']:.1f}", share]
        cells += [f"{found['first_call_s']:.0f}", _mebi(found["peak_bytes"]), _mebi(by_xla)]
        rows.append([*one["arguments"], *cells])
    head = ["molecule", "optimizer", "walkers", "ms a step", "share of peak", "first step, s"]
    yield from _table([*head, "memory, MiB", "by XLA's account"], rows)


def _share(card: str, operations: float | None, seconds: float) -> str:
    """Operations per second over the card's peak, as far as both are known."""
    peaks = [peak for name, peak in PEAKS.items() if all(word in card for word in name.split())]
    if operations is None or not peaks:
        return "not known"
    return f"{operations / seconds / peaks[0]:.2f}"


def _mebi(n_bytes: int | None) -> str:
    return "not known" if n_bytes is None else f"{n_bytes / MEBI:.0f}"


def _laplacians(documents: Mapping[str, Document]) -> Iterator[str]:
    rows = []
    for one in _of(documents, "measure.laplacian"):
        ms = one["found"]["ms"]
        for method, own in ms.items():
            times = [f"{own:.2f}", f"{own / ms['vmcjob']:.2f}"]
            rows.append([*one["arguments"], f"{one['found']['electrons']}", method, *times])
    yield from _table(["network", "electrons", "method", "ms", "over ours"], rows)


def _runs(documents: Mapping[str, Document]) -> Iterator[str]:
    for one in _of(documents, "jobs.resume"):
        at, n_steps = one["found"]["killed_at_step"], one["found"]["steps"]
        yield f"- Killed at step {at} and started again, a run has all its {n_steps} steps."
    for one in _of(documents, "jobs.shared"):
        yield f"- Two runs on one GPU do {one['found']['throughput']:.2f} times the steps of one."


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.tables", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    left = folder / LEFT
    print(render(read(folder), json.loads(left.read_text()) if left.exists() else {}), end="")


if __name__ == "__main__":
    main()
