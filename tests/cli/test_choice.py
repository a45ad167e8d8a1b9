"""The options of status that choose runs: --state, --since, --check."""

import time

import pytest
from typer.testing import CliRunner, Result

from tests.cli.shell import finish
from tests.runs import make_run
from vmcjob.cli.app import app
from vmcjob.cli.choice import begin_of
from vmcjob.errors import UsageError
from vmcjob.rundir import Outcome, OutcomeRecord


@pytest.fixture
def status(tmp_path, monkeypatch):
    """`status` in this process, on a finished run, a failed one and one that was never started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VMCJOB_SITE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    finish(make_run(tmp_path / "runs", "done-0123456789"))
    failed = make_run(tmp_path / "runs", "bad-0123456789")
    failed.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="no"))
    make_run(tmp_path / "runs", "new-0123456789")

    def run(*options: str) -> Result:
        return CliRunner().invoke(app, ["status", *options])

    return run


def shown(done: Result) -> list[str]:
    return sorted(line.split("-")[0] for line in done.stdout.splitlines()[1:])


def test_states_choose_runs_and_decide_the_exit_code(status) -> None:
    """A script that waits for failures must not be told of runs that it did not ask for."""
    assert shown(status()) == ["bad", "done", "new"]
    assert shown(status("--state", "failed", "--state", "NEW")) == ["bad", "new"]
    assert [status("--check", *o).exit_code for o in ((), ("--state", "finished"))] == [3, 0]
    done = status("--state", "faild")
    assert (done.exit_code, done.stderr) == (
        2,
        "--state faild: no state of a run; did you mean 'failed'?\n",
    )


def test_runs_from_before_a_time_are_left_out(status, monkeypatch) -> None:
    now = time.time()
    assert shown(status("--since", "1h")) == ["bad", "done", "new"]
    monkeypatch.setattr(time, "time", lambda: now + 7200)
    assert shown(status("--since", "1h")) == []
    assert shown(status("--since", "3h")) == ["bad", "done", "new"]
    assert status("--since", "yesterday").exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 910.0), ("10min", 400.0), ("0.1h", 640.0), ("1970-01-01T00:00:07+00:00", 7.0)],
)
def test_times_are_spans_before_now_or_dates(text: str, expected: float) -> None:
    assert begin_of(text, 1000.0) == expected
    with pytest.raises(UsageError, match="expected a time like"):
        begin_of("2 fortnights", 1000.0)
