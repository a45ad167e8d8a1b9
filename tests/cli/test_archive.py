"""archive, as users type it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, busy_slot
from tests.runs import end_everything
from tests.test_golden import CANCELLED, FINISHED, unpack


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """The runs of an earlier release: one helium atom is finished, one is not."""
    shell = unpack(tmp_path)
    yield shell
    end_everything(shell.runs)


def told(shell: Shell) -> list[str]:
    """What every reading command says of the finished run, clocks apart."""
    row = json.loads(shell.run("status", "--json", FINISHED).stdout)["runs"][0]
    row.pop("heartbeat_age_s", None)
    done = [
        json.dumps(row),
        shell.run("show", FINISHED).stdout,
        shell.run("aggregate", FINISHED, "--json").stdout,
    ]
    shell.run("plot", FINISHED, "-o", "run.svg")
    return [*done, (shell.cwd / "run.svg").read_text()]


@pytest.mark.slow
def test_an_archived_run_is_read_as_before_and_comes_back(shell):
    """status, show, aggregate and plot; of a store that an earlier release wrote."""
    before = told(shell)
    done = shell.run("archive", FINISHED, "--remove")
    assert done.returncode == 0, done.stderr
    folder = shell.runs / FINISHED
    assert (folder / "run.zarr.zip").is_file()
    assert not (folder / "run.zarr").exists()
    assert told(shell) == before
    (folder / ".run.zarr.partial").mkdir()  # as of one that was killed while it removed
    done = shell.run("archive", FINISHED, "--remove")
    assert not (folder / ".run.zarr.partial").exists()
    assert (done.returncode, "archived already" in done.stdout) == (0, True)
    done = shell.run("archive", "--restore", "--remove", FINISHED)
    assert done.returncode == 0, done.stderr
    assert not (folder / "run.zarr.zip").exists()
    assert told(shell) == before


def test_without_remove_both_are_there(shell):
    """And a second time there is nothing to do."""
    done = shell.run("archive", "--json", FINISHED)
    (one,) = json.loads(done.stdout)["runs"]
    assert (one["run_id"], one["result"], one["removed"]) == (FINISHED, "archived", False)
    folder = shell.runs / FINISHED
    files = [path for path in (folder / "run.zarr").rglob("*") if path.is_file()]
    assert one["files"] == len(files)
    assert one["bytes"] == sum(path.stat().st_size for path in files)
    again = json.loads(shell.run("archive", "--json", FINISHED).stdout)
    assert again["runs"][0]["result"] == "archived already"


def test_a_dry_run_writes_nothing(shell):
    done = shell.run("archive", "-n", "--remove", FINISHED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:2] == [FINISHED, "archived"]
    assert "without -n, it is" in done.stderr
    assert not (shell.runs / FINISHED / "run.zarr.zip").exists()
    assert (shell.runs / FINISHED / "run.zarr").exists()


def test_only_finished_runs_are_archived(shell):
    """The others are named, and do not keep it from those that are."""
    done = shell.run("archive", "spring*")
    assert done.returncode == 1
    assert f"{CANCELLED}: is cancelled; only finished runs are archived" in done.stderr
    assert FINISHED in done.stdout
    done = shell.run("archive", "--restore", CANCELLED)
    assert done.returncode == 1
    assert f"{CANCELLED}: has no archive" in done.stderr


def test_a_longer_run_can_be_made_of_an_archived_one(shell):
    """It has all rows of the shorter one before it has done a step of its own."""
    shell.run("archive", FINISHED, "--remove")
    with busy_slot(shell.runs):
        done = shell.run("resume", FINISHED, "--more-steps", "7")
        assert done.returncode == 0, done.stderr
        stores = shell.runs.glob("spring-*/run.zarr")
        (longer,) = (path for path in stores if path.parent.name != CANCELLED)
    attributes = json.loads((longer / "zarr.json").read_text())["attributes"]
    assert attributes["provenance"]["continues"]["run_id"] == FINISHED
    assert attributes["n_committed"]["evaluate"] == 20


def test_working_on_an_archived_run_says_to_restore_it(shell):
    """As when its outcome has been lost and somebody types resume."""
    shell.run("archive", FINISHED, "--remove")
    (shell.runs / FINISHED / "outcome.json").unlink()
    done = shell.run("run", f"runs/{FINISHED}")
    assert done.returncode == 1, done.stderr
    assert "vmcjob archive --restore first" in done.stderr
