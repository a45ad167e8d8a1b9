"""The catalogue of mistakes at the command line: each has the output of its page, to the letter."""

import errno
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
import submitit  # noqa: F401 -- sets up logging to the streams of its first import

from tests.cli.test_plot import make_finished
from tests.runs import make_record
from vmcjob.cli.app import main
from vmcjob.rundir import Activity, Heartbeat, Outcome, OutcomeRecord, RunDir
from vmcjob.spec import dump_spec, parse_spec, software

PAGE = Path(__file__).with_name("mistakes.md").read_text("utf-8")
_ENTRY = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WHERE = re.compile(r"^<!-- where (.+) -->$", re.MULTILINE)
H2 = '[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]'
SPEC = f'name = "h2"\n\n[system]\natoms = {H2}\n'


class Entry(NamedTuple):
    """One mistake: its files, the circumstances, the command, the output and the exit code."""

    title: str
    files: Mapping[str, str]
    where: str
    command: str
    output: str
    code: int


def _read(title: str, text: str) -> Entry:
    """An entry of the page."""
    blocks = _BLOCK.findall(text)
    (dialogue,) = (code for language, _, code in blocks if language == "console")
    files = {name: code for language, name, code in blocks if language != "console"}
    where = _WHERE.search(text)
    first, _, rest = dialogue.partition("\n")
    output, _, code = rest.rpartition("$ echo $?\n")
    command = first.removeprefix("$ vmcjob ")
    return Entry(title, files, where[1] if where else "", command, output, int(code))


CATALOGUE = [_read(*found) for found in _ENTRY.findall(PAGE)]


def make_desk(folder: Path) -> None:
    """The directory that the page describes: a spec, and runs in three states."""
    (folder / "h2.toml").write_text(SPEC)
    runs = folder / "runs"
    make_finished(runs, "h2-1a2b3c4d5e", -1.174476, H2, point={}, created=1e9)
    failed = OutcomeRecord(outcome=Outcome.FAILED, message="out of memory")
    _make_run(runs, "h2-2b3c4d5e6f", seed=1).write_outcome(failed)
    beat = Heartbeat(phase=Activity.TRAIN, step=10, n_steps=1000)  # of this very process
    _make_run(runs, "n2-4d5e6f7a8b").write_heartbeat(beat)


def _make_run(root: Path, run_id: str, **changes: object) -> RunDir:
    spec = parse_spec(SPEC, "x.toml").points[0].spec
    record = make_record(run_id, point={}, created=1e9, **changes)
    return RunDir.create(root, record, dump_spec(spec))


def answer(*arguments: str) -> tuple[str, int]:
    """What a command prints, on both streams in the order of time, and its exit code."""
    content = io.BytesIO()
    screen = io.TextIOWrapper(content, "utf-8", write_through=True)
    before = sys.argv
    with redirect_stdout(screen), redirect_stderr(screen):
        sys.argv = ["vmcjob", *arguments]
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv = before
    return content.getvalue().decode("utf-8"), code


def _without_matplotlib(change: pytest.MonkeyPatch, _: Path) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "vmcjob.plot"))]:
        change.delitem(sys.modules, name)
    change.setitem(sys.modules, "matplotlib", None)


def _with_newest_jax(change: pytest.MonkeyPatch, _: Path) -> None:
    change.setattr(software, "installed", lambda: {"jax": "0.11.0", "kfac-jax": "0.0.8"})


def _with_full_disk(change: pytest.MonkeyPatch, _: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    change.setattr(os, "replace", fail)


def _with_protected_root(change: pytest.MonkeyPatch, _: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    change.setattr(os, "mkdir", fail)


def _with_cluster(change: pytest.MonkeyPatch, desk: Path) -> None:
    programs = desk / "bin"
    programs.mkdir()
    change.setenv("PATH", str(programs))
    words = "sbatch: error: invalid partition specified: gpus"
    for name, action in {
        "sbatch": f"echo '{words}' >&2; exit 1",
        "scontrol": "echo 'Slurmctld(primary) at host is UP'",
        "squeue": ":",
        "srun": ":",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{action}\n")
        (programs / name).chmod(0o755)


CIRCUMSTANCES: Mapping[str, Callable[[pytest.MonkeyPatch, Path], None]] = {
    "matplotlib is not installed": _without_matplotlib,
    "JAX is 0.11.0": _with_newest_jax,
    "the disk is full": _with_full_disk,
    "no folder can be made": _with_protected_root,
    "SLURM refuses the partition": _with_cluster,
}


@pytest.fixture(scope="module")
def first_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The desk, to be copied."""
    folder = tmp_path_factory.mktemp("desk")
    make_desk(folder)
    return folder


def _files(folder: Path) -> list[Path]:
    """The files below a folder, without locks."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.name not in ("lock", "queue.lock")]


@pytest.mark.parametrize("entry", CATALOGUE, ids=[entry.title for entry in CATALOGUE])
def test_a_mistake_is_told(
    entry: Entry, first_desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These texts are what users see on a bad day, so a change to one of them is a decision."""
    desk = tmp_path / "desk"
    shutil.copytree(first_desk, desk)
    for name, text in entry.files.items():
        (desk / name).write_text(text, "utf-8")
    for name in [name for name in os.environ if name.startswith(("VMCJOB_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(desk)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    with monkeypatch.context() as change:
        if entry.where:
            CIRCUMSTANCES[entry.where](change, desk)
        before = _files(desk)
        output, code = answer(*shlex.split(entry.command))
    assert (output.replace(f"{desk}/", ""), code) == (entry.output, entry.code)
    assert _files(desk) == before, "a mistake leaves no trace"


def test_the_catalogue_is_read_whole() -> None:
    """An entry that the patterns above miss would be an entry that is never tested."""
    assert len(CATALOGUE) == PAGE.count("\n### ") == PAGE.count("```console\n") >= 40
    assert {entry.where for entry in CATALOGUE} == {"", *CIRCUMSTANCES}
