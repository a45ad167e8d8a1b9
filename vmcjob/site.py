"""The site profile: properties of a machine or cluster, and where its runs are stored."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from vmcjob.document import Document, Reader, at_least, matching
from vmcjob.errors import NotFoundError
from vmcjob.resources import DEFAULT_RETRIES, DIGEST, ONE_LINE, WALL_TIME, Request, Retries

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


@dataclass(frozen=True, kw_only=True)
class Slurm(Request):
    """Options of sbatch that apply if neither the spec nor a flag sets them."""

    time: Annotated[str, WALL_TIME, "wall time"] = "01:00:00"
    setup: Annotated[
        tuple[Annotated[str, ONE_LINE], ...],
        'shell lines for the job to begin with, like ["module load apptainer"]',
    ] = ()
    auto_resume: Annotated[
        bool, "whether preempted runs are submitted again by their jobs, where SLURM does not do it"
    ] = False
    mps: Annotated[bool, "whether jobs start NVIDIA's MPS for runs that share a GPU"] = False


@dataclass(frozen=True)
class Containers:
    """Settings for images; a job without an image runs in the Python that submitted it."""

    image: Annotated[
        str | None, ONE_LINE, "an Apptainer image for specs that name none; ~ and $VARIABLES"
    ] = None
    sha256: Annotated[str | None, DIGEST, "that this image must have"] = None
    image_folders: Annotated[
        tuple[Annotated[str, ONE_LINE], ...], "where the images of specs must be; none: anywhere"
    ] = ()
    compile_cache: Annotated[
        str | None, ONE_LINE, 'where programs are kept that were compiled in images; or "off"'
    ] = None
    binds: Annotated[
        tuple[Annotated[str, ONE_LINE], ...], "further paths to be seen inside, as SRC[:DEST[:ro]]"
    ] = ()
    options: Annotated[
        tuple[Annotated[str, ONE_LINE], ...], 'further options of apptainer exec, like ["--userns"]'
    ] = ()


SPEC_KEYS: Final = (
    *("seed", "seeds", "sweep", "system", "ansatz", "sampler", "pretrain", "optimizer", "train"),
    *("evaluate", "numerics", "output", "resources", "budget", "relax"),
)
"""Keys of specs that profiles do not have."""


@dataclass(frozen=True)
class Site:
    """A profile; the defaults fit a machine without a profile."""

    name: Annotated[str, "what to call this machine"] = "local"
    runs: Annotated[Path, "root of all run directories; may hold ~ and $VARIABLES"] = Path("runs")
    scheduler: Annotated[
        str,
        matching("[a-z][a-z0-9_-]{0,31}", 'the name of a scheduler, like "slurm"'),
        "auto: SLURM where there is sbatch, else local",
    ] = "auto"
    max_parallel: Annotated[
        int, at_least(1), "runs at a time without a scheduler, in all roots"
    ] = 1
    private: Annotated[bool, "whether what is written is closed to all other users"] = False
    notify: Annotated[
        str | None,
        ONE_LINE,
        "a command that is told of ends of runs and submissions, by JSON on its standard input",
    ] = None
    slurm: Slurm = Slurm()
    container: Containers = Containers()
    retries: Retries = DEFAULT_RETRIES

    @staticmethod
    def translate(name: str, _: object) -> str | None:
        """Name the document of a key that belongs in a spec; None for other keys."""
        words = "it belongs in a spec, and --site names a profile"
        return f"unknown here; {words}" if name in SPEC_KEYS else None


def load_site(profile: Path | None, environ: Mapping[str, str]) -> Site:
    """The given profile, else $VMCJOB_SITE, else the user's own, else the default.

    $VMCJOB_RUNS replaces `runs` in each of them. SpecError for mistakes in a profile, NotFoundError
    if a named profile does not exist.
    """
    path = find_profile(profile, environ)
    site = _read(path, environ) if path else Site()
    runs = environ.get("VMCJOB_RUNS")
    return replace(site, runs=Path(runs)) if runs else site


def find_profile(profile: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file of the profile: the given one, else $VMCJOB_SITE, else the user's own, else None."""
    if profile is not None:
        return profile
    if named := environ.get("VMCJOB_SITE"):
        if not Path(named).exists():
            raise NotFoundError(f"{named}: no such file; $VMCJOB_SITE names it")
        return Path(named)
    own = own_profile(environ)
    return own if own.is_file() else None


def own_profile(environ: Mapping[str, str]) -> Path:
    """The file of the user's own profile, which need not be there."""
    return Path(environ.get("HOME", "/nonexistent"), ".config", "vmcjob", "site.toml")


def _read(path: Path, environ: Mapping[str, str]) -> Site:
    document = Document.read(path)
    reader = Reader(document, Site)
    site = reader.finish(reader.root(Site, document.tables))
    try:
        site = replace(site, runs=_fill_in(str(site.runs), environ))
    except KeyError as problem:
        words = f"the environment has no variable {problem.args[0]}"
        return reader.finish(reader.complain(("runs",), words))
    site = _fill_in_notify(reader, site, environ)
    for key in ("image", "compile_cache"):
        if (value := getattr(site.container, key)) is None:
            continue
        try:
            filled = str(_fill_in(value, environ))
        except KeyError as problem:
            words = f"the environment has no variable {problem.args[0]}"
            return reader.finish(reader.complain(("container", key), words))
        site = replace(site, container=replace(site.container, **{key: filled}))
    try:
        folders = tuple(str(_fill_in(path, environ)) for path in site.container.image_folders)
    except KeyError as problem:
        words = f"the environment has no variable {problem.args[0]}"
        return reader.finish(reader.complain(("container", "image_folders"), words))
    return replace(site, container=replace(site.container, image_folders=folders))


def _fill_in_notify(reader: Reader, site: Site, environ: Mapping[str, str]) -> Site:
    """The site with its notification command prepared to start from any directory."""
    if site.notify is None:
        return site
    try:
        words = [_substitute(word, environ) for word in shlex.split(site.notify)]
    except KeyError as problem:
        words, complaint = [], f"the environment has no variable {problem.args[0]}"
    except ValueError as problem:
        words, complaint = [], f"not a command: {str(problem).lower()}; quote it as for a shell"
    else:
        complaint = "names no program" if not words or not words[0] else ""
        if words and "/" in words[0] and not words[0].startswith("/"):
            complaint = (
                f"{words[0]} starts at the current directory, and runs have others; expected a "
                "program on PATH or an absolute path, like ~/bin/notify"
            )
    if complaint:
        return reader.finish(reader.complain(("notify",), complaint))
    return replace(site, notify=shlex.join(words))


def _fill_in(path: str, environ: Mapping[str, str]) -> Path:
    """A path with its leading ~ and its $VARIABLES replaced; KeyError if one is unset."""
    return Path(_substitute(path, environ))


def _substitute(text: str, environ: Mapping[str, str]) -> str:
    """A text with its leading ~ and its $VARIABLES replaced; KeyError if one is unset."""
    if text == "~" or text.startswith("~/"):
        text = f"$HOME{text[1:]}"
    return _VARIABLE.sub(lambda found: environ[found["braced"] or found["bare"]], text)
