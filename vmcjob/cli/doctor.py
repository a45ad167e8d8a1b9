"""The command `doctor`: whether this machine, or a node of the cluster, can run jobs."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli import checks
from vmcjob.cli.app import Command, app
from vmcjob.cli.checks import FAILURE, OK, WARNING, Check
from vmcjob.cli.hints import build_image, suggest, where_runs_are
from vmcjob.cli.options import AsJson, RunsRoot, SiteProfile, resolve_site
from vmcjob.cli.quota import check_quota
from vmcjob.cli.screen import n_columns, put_drawn, put_json, say, shows_colour
from vmcjob.cli.text import GAP, count, make_visible, paint, wrap
from vmcjob.errors import SchedulerError, VmcJobError

if TYPE_CHECKING:
    from vmcjob.site import Site

STYLES = {OK: "green", WARNING: "yellow", FAILURE: "red"}
TITLES = "check", "result", "found"
WALL_TIME = "00:10:00"
START = ("init --molecule H2O",)
"""The command behind the checks."""

IsOnNode = Annotated[
    bool,
    typer.Option(
        "--on-node", help="Check a node, in a job of the site's partition; waits for that job."
    ),
]


@app.command(cls=Command)
def doctor(
    site: SiteProfile = None,
    runs: RunsRoot = None,
    is_on_node: IsOnNode = False,
    as_json: AsJson = False,
) -> None:
    """Check what runs need on this machine, or on a node.

    Python, folders, SLURM, Apptainer, the image and GPUs are checked.

    Each line is ok, a warning or a failure, with the next command to type. The exit code is 1 if
    there is a failure.
    """
    place = resolve_site(site, runs)
    if is_on_node:
        if code := _run_on_node(place, site, runs, as_json=as_json):
            raise typer.Exit(code)
        if not as_json:
            suggest(*START)
        return
    found = list(_examine(place))
    if as_json:
        put_json({"schema_version": 1, "checks": [asdict(check) for check in found]})
    else:
        put_drawn("\n".join(_draw(found)))
        counts = {level: sum(check.level == level for check in found) for level in STYLES}
        say(", ".join(_count(number, level) for level, number in counts.items() if number), "dim")
    if any(check.level == FAILURE for check in found):
        raise typer.Exit(VmcJobError.exit_code)
    if not as_json:
        suggest(*_after_checks(place, found, where_runs_are(site, runs)))


def _examine(site: "Site") -> Iterator[Check]:
    """All checks, in the order in which one mends them."""
    from vmcjob.apptainer.container import find_image
    from vmcjob.spec import Container

    yield from checks.check_python()
    yield from checks.check_machine()
    yield from checks.check_folders(site)
    yield from check_quota()
    yield from checks.check_slurm(site)
    image = find_image(Container(), site.container)
    yield from checks.check_apptainer(image, site.container.options)
    yield from checks.check_image(image)
    yield from checks.check_gpus(image)


def _after_checks(site: "Site", found: list[Check], options: str) -> Iterator[str]:
    """The next commands where nothing has failed: an image, a look at a node, a spec."""
    is_cluster = site.scheduler != "local" and shutil.which("sbatch") is not None
    starts = any(check.name == "container" and check.level == OK for check in found)
    if is_cluster and starts and site.container.image is None:
        yield build_image(site)
    if is_cluster:
        yield f"doctor --on-node{options}"
    yield from START


def _count(number: int, level: str) -> str:
    """The number of checks of a level: 9 ok, 2 warnings, 1 failure."""
    return f"{number} {level}" if level == OK else count(number, level)


def _draw(found: list[Check]) -> Iterator[str]:
    """A line for each check, as long as the terminal is wide, and below it the next command."""
    names = max(len(check.name) for check in found)
    levels = max(map(len, (*STYLES, TITLES[1])))
    indent, width, is_coloured = (
        names + levels + 2 * len(GAP),
        n_columns(),
        shows_colour(sys.stdout),
    )

    def in_style(text: str, style: str) -> str:
        return paint(text, style) if is_coloured else text

    name, level, words = TITLES
    yield in_style(f"{name:<{names}}{GAP}{level:<{levels}}{GAP}{words}", "dim")
    for check in found:
        level = in_style(f"{check.level:<{levels}}", STYLES[check.level])
        words = make_visible(check.found)
        words = words if width is None else wrap(words, width, indent)
        yield f"{check.name:<{names}}{GAP}{level}{GAP}{words}"
        if check.command:
            yield " " * indent + in_style(f"$ {check.command}", "cyan")


def _run_on_node(site: "Site", profile: Path | None, runs: Path | None, *, as_json: bool) -> int:
    """The exit code of the same checks in a job; its output goes to ours.

    The job asks for a GPU where the partition has GPUs: nodes hide the GPUs of other jobs.
    """
    from vmcjob.scheduler import has_gpus

    wanted = {
        key: getattr(site.slurm, key)
        for key in ("partition", "account", "qos", "constraint", "gres", "mem")
    }
    command = ["srun", "--ntasks=1", f"--time={WALL_TIME}"]
    command += [f"--{key}={value}" for key, value in wanted.items() if value]
    if not site.slurm.gres and has_gpus(site.slurm.partition):
        command.append("--gpus-per-node=1")
    command += [sys.executable, "-P", "-m", "vmcjob", "doctor"]
    paths = {"--site": profile, "--runs": runs}
    command += [
        word for flag, path in paths.items() if path for word in (flag, str(path.absolute()))
    ]
    try:
        return subprocess.run([*command, *(["--json"] if as_json else [])], check=False).returncode
    except OSError as error:
        words = f"srun: {(error.strerror or '').lower()}; is this a SLURM machine?"
        raise SchedulerError(words) from None
