"""The command `init`: a starter spec, and a site profile of a cluster."""

import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.app import Command, app
from vmcjob.cli.hints import build_image, say_next
from vmcjob.cli.schema import Documents, make_schema
from vmcjob.cli.screen import is_terminal, say
from vmcjob.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from vmcjob.spec import System

SCHEMA_NAME = "vmcjob-spec.schema.json"
PROFILE_NAME = "site.toml"
DEFAULT_ATOMS = 'atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]   # in bohr'

Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]",
        help="Where to write; made if it is not there. [default: this folder; for --cluster, "
        "~/.config/vmcjob, where all commands find the profile]",
    ),
]
Xyz = Annotated[
    Path | None, typer.Option("--xyz", metavar="FILE", help="The molecule of an xyz file.")
]
Molecule = Annotated[
    str | None,
    typer.Option("--molecule", metavar="NAME", help="A molecule of ase's table, like H2O."),
]
IsCurve = Annotated[
    bool,
    typer.Option("--curve", help="Of two atoms: one run for each of ten distances, as a sweep."),
]
IsCluster = Annotated[
    bool,
    typer.Option("--cluster", help="Write a site profile from what SLURM says here, and no spec."),
]


@app.command(cls=Command)
def init(
    folder: Folder = None,
    xyz: Xyz = None,
    molecule: Molecule = None,
    is_curve: IsCurve = False,
    is_cluster: IsCluster = False,
) -> None:
    """Write a starter spec, with the common keys as comments. No file is ever overwritten.

    Without --xyz and --molecule, it asks for the molecule on a terminal; elsewhere, it takes H2.
    """
    if is_cluster:
        if xyz or molecule or is_curve:
            raise UsageError("--cluster writes no spec; leave --xyz, --molecule and --curve out")
        _write_profile(folder)
        return
    folder = folder or Path()
    if xyz and molecule:
        raise UsageError("give one of --xyz and --molecule")
    if not (xyz or molecule) and is_terminal(sys.stdin):
        answer = typer.prompt("Molecule (a name like H2O, or an xyz file)", default="H2", err=True)
        is_file = answer.endswith(".xyz") or Path(answer).is_file()
        xyz, molecule = (Path(answer), None) if is_file else (None, _unless_default(answer))
    _write_spec(folder, xyz, molecule, is_curve=is_curve)


def _unless_default(answer: str) -> str | None:
    return None if answer == "H2" else answer


def _write_spec(folder: Path, xyz: Path | None, molecule: str | None, *, is_curve: bool) -> None:
    """Write the spec and its schema; SpecError if its molecule cannot be read."""
    from vmcjob.document import format_value
    from vmcjob.spec import parse_spec, starter

    geometry = to_check = DEFAULT_ATOMS
    if xyz is not None:
        if not xyz.is_file():
            raise NotFoundError(f"{xyz}: no such file; --xyz names it")
        to_check = f"xyz = {format_value(str(xyz.resolve()))}"  # the folder may not be there yet
        geometry = f"xyz = {format_value(os.path.relpath(xyz.resolve(), folder.resolve()))}"
    elif molecule is not None:
        geometry = to_check = f"molecule = {format_value(molecule)}"
    name = _name(xyz.stem if xyz is not None else molecule or "h2")
    path = folder / f"{name}.toml"
    if folder.is_file():
        raise UsageError(f"{folder}: is a file; expected a folder to write {path.name} in")
    _require_new(path)
    (point,) = parse_spec(starter(name, to_check, SCHEMA_NAME), str(path)).points
    if is_curve:
        text = _curve_text(name, xyz or molecule or "H2", point.spec.system)
    else:
        text = starter(name, geometry, f"./{SCHEMA_NAME}")
    _write(path, text)
    if not (folder / SCHEMA_NAME).exists():
        _write(folder / SCHEMA_NAME, f"{json.dumps(make_schema(Documents.SPEC), indent=1)}\n")
    where = quote(str(path))
    say(f"wrote {path}\n\n  vmcjob validate {where}\n  vmcjob submit --follow {where}")


def _curve_text(name: str, molecule: object, system: "System") -> str:
    """A starter spec of a curve; UsageError where there are not two atoms."""
    from vmcjob.spec.starter import NoCurveError, curve_starter

    try:
        return curve_starter(name, system, f"./{SCHEMA_NAME}")
    except NoCurveError as error:
        raise UsageError(f"--curve: {molecule} {error}") from None


def _write_profile(folder: Path | None) -> None:
    """Write the profile of this cluster; SchedulerError if no cluster answers."""
    from vmcjob.apptainer.trial import try_start
    from vmcjob.scheduler import draft_profile
    from vmcjob.site import find_profile, load_site, own_profile

    path = own_profile(os.environ) if folder is None else folder / PROFILE_NAME
    _require_new(path)
    # $VMCJOB_SITE may name another profile, or a file that is not there.
    is_found = folder is None and find_profile(None, os.environ) in (None, path)
    trial = try_start() if shutil.which("apptainer") else None
    options = (trial and trial.options) or ()
    _write(path, draft_profile(socket.gethostname().partition(".")[0], options))
    site = "" if is_found else f" --site {quote(str(path))}"
    say(f"wrote {path}; look through it, then")
    starts = trial is not None and trial.options is not None
    say_next(
        *([build_image(load_site(path, os.environ))] if starts else []),
        f"doctor{site}",
        f"doctor --on-node{site}",
        "init --molecule H2O",
        f"submit -n --check{site} SPEC",
    )


def _name(text: str) -> str:
    """A name of runs from the name of a file or molecule."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-").lower()[:64] or "molecule"


def _require_new(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path}: is there already and is not overwritten; choose another DIR")


def _write(path: Path, text: str) -> None:
    """Write a new file; UsageError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {(error.strerror or '').lower()}") from None
