"""The command `plot`: pictures of runs, of curves and of relaxations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.curve import plot_curve, read_fragments
from vmcjob.cli.energies import Unbalanced
from vmcjob.cli.expand import expand_options
from vmcjob.cli.newest import find_newer, say_replaced
from vmcjob.cli.options import AnySelectors, RunsRoot, SiteProfile, select_runs
from vmcjob.cli.outfile import write_output
from vmcjob.cli.screen import put
from vmcjob.cli.text import count, format_point
from vmcjob.errors import IncompleteError, NotFoundError, StoreError, UsageError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.plot import RunSeries
    from vmcjob.rundir import RunDir

MAX_COMPARED = 80
"""Runs in one picture: more lines than anybody tells apart."""

FOLDER = Path("plots")
"""Where the pictures of several runs go, unless the user says where."""

Format = Literal["png", "svg", "pdf"]


@dataclass(frozen=True)
class PictureOptions:
    """What the pictures show, and where they go."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Of one picture; else a folder. Default: here, of several runs in plots.",
        ),
    ] = None
    image_format: Annotated[
        Format, typer.Option("--format", help="Where no file says it by its name.")
    ] = "png"
    compare: Annotated[bool, typer.Option("--compare", help="All runs in one picture.")] = False
    curve: Annotated[bool, typer.Option("--curve", help="Energies along sweeps, with minima.")] = (
        False
    )
    fragments: Annotated[
        str | None,
        typer.Option("--fragments", metavar="SUM", help="With --curve: the fragments, like 2*h."),
    ] = None
    unbalanced: Unbalanced = False
    path: Annotated[
        bool, typer.Option("--path", help="Energy and largest force along a relaxation.")
    ] = False


@app.command(cls=Command)
@expand_options
def plot(
    options: PictureOptions,
    selectors: AnySelectors = None,
    site: SiteProfile = None,
    runs: RunsRoot = None,
) -> None:
    """Draw how runs converged, the curve of a sweep, or the path of a relaxation.

    Each run gets a picture of its training and of the error of its evaluated energy; a second
    picture shows its observables. Ends with exit code 3 when a run could not be drawn.
    """
    if options.compare + options.curve + options.path > 1:
        raise UsageError("--compare, --curve and --path are different pictures; choose one")
    if options.fragments is not None and not options.curve:
        raise UsageError("--fragments is for --curve")
    chosen = select_runs(selectors, site, runs)
    if not chosen:
        raise NotFoundError("there is nothing to draw")
    output, image_format = options.output, options.image_format
    if options.curve:
        fragments = None
        if options.fragments is not None:
            others = select_runs(None, site, runs)
            fragments = read_fragments(options.fragments, others, unbalanced=options.unbalanced)
        plot_curve(chosen, _target(output, "curve", image_format, chosen), fragments)
    elif options.path:
        _plot_path(chosen, _target(output, "path", image_format, chosen))
    elif options.compare:
        chosen = _without_replaced(chosen, selectors)
        _plot_comparison(chosen, _target(output, "comparison", image_format, chosen))
    else:
        _plot_each(_without_replaced(chosen, selectors), output, image_format)


def _without_replaced(chosen: "list[RunDir]", selectors: list[str] | None) -> "list[RunDir]":
    """The runs without those that another has trained on from, if that one can be drawn."""
    from vmcjob.store import peek

    newer = find_newer(chosen, selectors or ())
    drawable = {run.path.name for run in chosen if peek.exists(run.store_path)}
    gone = {run_id: other for run_id, other in newer.items() if other in drawable}
    say_replaced(gone, "vmcjob status --all lists")
    return [run for run in chosen if run.path.name not in gone]


def _plot_each(chosen: "Sequence[RunDir]", output: Path | None, image_format: Format) -> None:
    """Draw a picture for each run; unreadable runs are reported at the end."""
    if len(chosen) > 1 and output is not None and output.suffix:
        raise UsageError(f"{output}: one file for {len(chosen)} runs; name a folder, or --compare")
    if len(chosen) > 1 and output is None:
        output = FOLDER
    targets = [_target(output, run.path.name, image_format, chosen) for run in chosen]
    errors: list[VmcJobError] = []
    for run, path in zip(chosen, targets, strict=True):
        try:
            _plot_one(run, path)
        except UsageError:  # where one picture cannot be written, no other one can
            raise
        except VmcJobError as error:
            errors.append(error)
    _raise_all(errors, len(chosen))


def _plot_one(run: "RunDir", path: Path) -> None:
    from vmcjob.cli.observables import say_numbers
    from vmcjob.plot import draw_observables, draw_overview, render
    from vmcjob.results.observed import quantities

    write_output(path, render(draw_overview(read_series(run)), path))
    if found := quantities(run.store_path):
        beside = path.with_stem(f"{path.stem}-observables")
        drawn = draw_observables(title_of(run), found, say_numbers(found))
        write_output(beside, render(drawn, beside))


def _plot_path(chosen: "Sequence[RunDir]", file: Path) -> None:
    """Draw the only relaxation among the runs, and print how far it has come."""
    from vmcjob.cli.geometries import draw_relaxation, ending_in_words, the_only_path
    from vmcjob.plot import render

    path, is_replaced = the_only_path(chosen, "--path draws")
    write_output(file, render(draw_relaxation(path), file))
    put(f"{path.name}: {ending_in_words(path, is_replaced)}")


def _plot_comparison(chosen: "Sequence[RunDir]", path: Path) -> None:
    from vmcjob.plot import draw_comparison, render

    if len(chosen) > MAX_COMPARED:
        raise UsageError(
            f"{count(len(chosen), 'run')} in one picture; at most {MAX_COMPARED} can be told apart"
        )
    found: list[RunSeries] = []
    errors: list[VmcJobError] = []
    for run in chosen:
        try:
            found.append(replace(read_series(run), label=_describe(run, chosen)))
        except VmcJobError as error:
            errors.append(error)
    if found:
        write_output(path, render(draw_comparison(found), path))
    _raise_all(errors, len(chosen))


def _describe(run: "RunDir", chosen: "Sequence[RunDir]") -> str:
    """Name, point and seed, and the run id if these are not unique."""
    words = _words(run)
    is_unique = sum(_words(other) == words for other in chosen) == 1
    return words if is_unique else f"{words} {run.path.name}"


def _words(run: "RunDir") -> str:
    record = run.read_record()
    return " ".join(filter(None, (record.name, format_point(record.point), f"seed {record.seed}")))


def read_series(run: "RunDir") -> "RunSeries":
    """The series of a run's picture; StoreError if there are none yet."""
    from vmcjob.plot import read
    from vmcjob.spec import load_resolved
    from vmcjob.store import peek

    run_id = run.path.name
    if not peek.exists(run.store_path):
        raise StoreError(f"{run_id}: has no results yet")
    series = read(run.store_path, run_id, title_of(run))
    try:
        spec = load_resolved(run.read_spec_text(), str(run.spec_path))
    except VmcJobError:
        return series  # an unreadable spec does not make the pictures worse
    return replace(
        series,
        reference=spec.system.reference,
        is_width_relative=spec.sampler.proposal == "scaled",
    )


def title_of(run: "RunDir") -> str:
    """The name, place and seed of a run, and its run id."""
    return f"{_words(run)} ({run.path.name})"


def _target(
    output: Path | None, stem: str, image_format: Format, chosen: "Sequence[RunDir]"
) -> Path:
    """The path of a picture; UsageError if writing there would do harm or is impossible."""
    from vmcjob.cli.tablefile import refuse_folders_of_runs
    from vmcjob.plot import FORMATS

    path = output or Path()
    if path.is_dir() or not path.suffix:
        path = path / f"{stem}.{image_format}"
    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise UsageError(f"{path}: pictures are {', '.join(FORMATS)}; name it so")
    refuse_folders_of_runs(path, chosen)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path.parent}: cannot be made: {error.strerror}") from None
    return path


def _raise_all(errors: "Sequence[VmcJobError]", n_runs: int) -> None:
    if errors:
        words = f"{len(errors)} of {count(n_runs, 'run')} could not be drawn"
        raise IncompleteError("\n".join([*map(str, errors), words]))
