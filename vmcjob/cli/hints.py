"""The next commands to type, in grey below the output of a command."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING

from vmcjob.cli.screen import is_terminal, say

if TYPE_CHECKING:
    from vmcjob.results.table import Row, Table
    from vmcjob.rundir import RunDir
    from vmcjob.runs.status import RunStatus
    from vmcjob.site import Site

DRY = ("-n", "--dry-run", "--check")
OF_PROGRAM = "--color"  # an option before the command, with a value
OF_ESTIMATE = ("--calibration", "--no-calibration")
SECONDS = "--seconds"  # an option of estimate with a value
MAX_NAMED = 4  # specs or runs in one command
POINTS_OF_CURVE = 4  # as many as a fit takes
FLAGS = "nf"  # short options of commands that submit; they have no value


def say_next(*commands: str) -> None:
    """Print commands, without the name of the program, as lines to copy."""
    if commands:
        say("".join(f"\n  vmcjob {command}" for command in commands), "dim")


def suggest(*commands: str) -> None:
    """Print commands where a person reads the data: on a terminal."""
    if is_terminal(sys.stdout):
        say_next(*commands)


def where_runs_are(site: Path | None, runs: Path | None) -> str:
    """The options that lead other commands to the same runs, with a space before each."""
    options = {"--site": site, "--runs": runs}
    return "".join(f" {name} {quote(str(path))}" for name, path in options.items() if path)


def typed(*, command: str | None = None, without: Sequence[str] = ()) -> str:
    """The command line of this process, as another command or without some options."""
    words = _without_value(sys.argv[1:], OF_PROGRAM)
    first, others = "".join(words[:1]), words[1:]
    if SECONDS in without:
        others = _without_value(others, SECONDS)
    end = others.index("--") if "--" in others else len(others)
    kept = (_without_letters(word, without) for word in others[:end] if word not in without)
    return f"{command or first} {join([*filter(None, kept), *others[end:]])}"


def _without_value(words: Sequence[str], option: str) -> list[str]:
    """The words without an option and its value, which may be one word, like --color=never."""
    pairs = zip(words, ["", *words], strict=False)
    is_part = ((word, option in (word, before)) for word, before in pairs)
    return [word for word, is_its in is_part if not is_its and not word.startswith(f"{option}=")]


def _without_letters(word: str, without: Sequence[str]) -> str:
    """Joined short options, like -nf, without some of them; "" if none is left."""
    if word == "-" or word.startswith("--") or not word.startswith("-"):
        return word
    rest = word[1:].lstrip(FLAGS)  # an option with its value may follow
    flags = word[1 : len(word) - len(rest)]
    kept = "".join(letter for letter in flags if f"-{letter}" not in without) + rest
    return f"-{kept}" if kept else ""


def build_image(site: "Site") -> str:
    """The command that makes an image, for GPUs where the site's partition has some."""
    from vmcjob.scheduler import has_gpus

    return f"image build{' --gpu' if has_gpus(site.slurm.partition) else ''} ~/vmcjob.sif"


def after_status(rows: "Sequence[RunStatus]", options: str) -> Iterator[str]:
    """Commands for the runs that are at work, failed or stopped, and for the finished ones."""
    going = [row.run for row in rows if row.state.is_active]
    failed = [row.run for row in rows if row.state == "FAILED"]
    stopped = [row.run for row in rows if row.state in ("CANCELLED", "PREEMPTED", "DEAD")]
    if going:
        yield f"logs -f{options} {going[0].path.name}"
        yield f"cancel{options} {names_of(going)}"
    if failed:
        yield f"logs{options} {failed[0].path.name}"
    if again := stopped or failed:
        yield f"resume{options} {names_of(again)}"
    if any(row.state == "FINISHED" for row in rows):
        yield f"aggregate{options}"


def names_of(runs: "Sequence[RunDir]", *, are_finished: bool = False) -> str:
    """The words that select some runs: their ids, or the name that several of them share.

    A name selects all of its runs, so a command has it only where it changes no other run. Cancel
    and resume leave finished runs alone, unless `are_finished` says that finished runs are meant.
    """
    meant: dict[str, list[RunDir]] = {}
    for run in runs:
        meant.setdefault(name_in(run.path.name), []).append(run)
    words: list[str] = []
    for name, alike in meant.items():
        is_whole = alike[1:] and not any(
            are_finished or not _has_finished(other) for other in _namesakes(name, alike)
        )
        words += [name] if is_whole else [run.path.name for run in alike]
    return join(words[:MAX_NAMED])


def _namesakes(name: str, runs: "Sequence[RunDir]") -> "Iterator[RunDir]":
    """The other runs of a name in the runs roots of some runs."""
    beside = {run.path.parent: run for run in runs}
    ids = {run.path.name for run in runs}
    for root, run in beside.items():
        for entry in os.listdir(root):
            if entry not in ids and name_in(entry) == name:
                yield run.beside(entry)


def _has_finished(run: "RunDir") -> bool:
    """Whether a run has finished, as far as its directory tells."""
    end = run.read_outcome()
    return end is not None and end.outcome == "FINISHED"


def name_in(run_id: str) -> str:
    """The name of the spec in a run id."""
    return run_id.rpartition("-")[0]


def curve_of(
    points: Sequence[Mapping[str, object]], selectors: Sequence[str], options: str
) -> Iterator[str]:
    """The command that draws rows as a curve, if they are a sweep over one key with numbers."""
    keys = {tuple(point) for point in points}
    are_numbers = not any(isinstance(value, str) for point in points for value in point.values())
    if len(points) >= POINTS_OF_CURVE and are_numbers and [len(key) for key in keys] == [1]:
        named = f" {join(selectors)}" if selectors else ""
        yield f"plot --curve{options}{named}"


def resume_rows(table: "Table", selectors: Sequence[str], options: str) -> Iterator[str]:
    """The commands that make energies better, one for all rows of a name that need the same.

    A name stands for all of its runs, so a command has it only where each of them is meant.
    """
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in table.rows:
        rows.setdefault((name_in(row.run_ids[0]), row.resume_with), []).append(row)
    left_out = {name_in(one.run_id) for one in table.excluded}
    all_of = Counter(name for name, _ in rows) + Counter(left_out)
    for (name, wanted), alike in rows.items():
        run_ids = [run_id for row in alike for run_id in row.run_ids]
        is_whole = all_of[name] == 1 and (not selectors or name in selectors)
        named = name if is_whole and run_ids[1:] else join(run_ids)
        if wanted:
            yield f"resume{options} {named} {wanted}"


def after_energies(selectors: Sequence[str], options: str) -> Iterator[str]:
    """Commands for runs whose energies are good; all runs without selectors."""
    named = f" {join(selectors)}" if selectors else ""
    yield f"plot{options}{named}"
    yield f"report{options} -o report.html{named}"
    everything = " '*'"
    yield f"archive{options}{named or everything}"
