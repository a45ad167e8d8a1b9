"""The command `export`: runs in other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.options import AnySelectors, RunsRoot, SiteProfile, select_runs
from vmcjob.cli.progress import Progress
from vmcjob.cli.screen import say
from vmcjob.cli.show import provenance_facts
from vmcjob.cli.tablefile import refuse_folders_of_runs
from vmcjob.cli.text import count
from vmcjob.errors import ExportError, IncompleteError, NotFoundError, StoreError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.rundir import RunDir


@app.command(cls=Command)
def export(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Gets a folder for each run."),
    ],
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
) -> None:
    """Write the series of runs as event files of TensorBoard.

    Each run gets a folder; an earlier event file is replaced. Ends with exit code 3 when a run
    could not be exported.
    """
    from vmcjob.results.export import require_library

    require_library()
    chosen = select_runs(selectors, site, runs)
    if not chosen:
        raise NotFoundError("there is nothing to export")
    for run in chosen:
        refuse_folders_of_runs(output / run.path.name / "events", chosen)
    errors: list[VmcJobError] = []
    for run in Progress("exporting runs", len(chosen)).over(chosen):
        try:
            _export(run, output / run.path.name)
        except ExportError:  # where one file cannot be written, no other one can
            raise
        except VmcJobError as error:
            errors.append(error)
    if n_done := len(chosen) - len(errors):
        say(f"wrote {count(n_done, 'run')}; tensorboard --logdir {output} shows them", "dim")
    if errors:
        words = f"{len(errors)} of {count(len(chosen), 'run')} could not be exported"
        raise IncompleteError("\n".join([*map(str, errors), words]))


def _export(run: "RunDir", folder: Path) -> None:
    """Export one run in any state, up to its last commit."""
    from vmcjob.results.export import write_events
    from vmcjob.store import RunStore, peek

    if not peek.exists(run.store_path):
        raise StoreError(f"{run.path.name}: has no results yet")
    record = run.read_record()
    store = RunStore.open(run.store_path, run_id=record.run_id)
    facts = provenance_facts(store.attrs["provenance"])
    texts = {
        "spec": _verbatim(store.attrs["spec"]),
        "provenance": _verbatim("\n".join(f"{name}: {value}" for name, value in facts.items())),
    }
    try:
        write_events(store, texts, record.created, folder)
    except OSError as error:
        raise ExportError(f"{folder}: cannot be written: {error.strerror}") from None


def _verbatim(text: str) -> str:
    """Lines as they are, in Markdown."""
    return "\n".join(f"    {line}" for line in text.splitlines())
