"""Commands about runs that wait for others."""

import json

from tests.runs import make_run
from vmcjob.rundir import END, LOCAL, Process, RunDir, Submission
from vmcjob.rundir.process import host_name
from vmcjob.runs.status import State, examine

GONE = 2**22 + 1  # no process has such a number


def wait_for(run: RunDir, other: RunDir) -> None:
    """As if whoever kept the run for its turn had ended."""
    gone = Process(host_name(), GONE, 1)
    submission = Submission(
        scheduler=LOCAL,
        job_id=f"{LOCAL}-{gone.pid}",
        pid=gone.pid,
        process_start=gone.start,
        waits_for={other.path.name: END},
    )
    run.write_submission(submission)


def test_a_start_that_nobody_works_on_is_refused_before_anything_is_written(shell):
    origin = make_run(shell.runs, "h-0123456789")
    text = f'name = "n"\nsystem.atoms = [["H", 0, 0, 0]]\ntrain.start_from = "{origin.path.name}"\n'
    (shell.cwd / "next.toml").write_text(text)
    done = shell.run("submit", "next.toml")
    assert done.returncode == 2
    assert done.stderr == (
        f"next.toml: train.start_from: runs/{origin.path.name} is new and has no results yet; "
        "submit it first\n"
    )
    assert [path.name for path in shell.runs.glob("n-*")] == []


def test_what_would_come_after_a_run_that_nobody_works_on_is_left_alone(shell):
    """With the command that goes on with both."""
    origin = make_run(shell.runs, "a-0123456789")
    done = shell.run("submit", "h.toml", "-n", "--after", "a-01")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("# would be")]
    for line in lines:
        assert line.startswith("# would be skipped: runs/h-")
        assert f"{origin.path.name}, which it is to come after, is new; vmcjob resume " in line
    assert len(lines) == 2


def test_a_run_to_come_after_that_is_not_there_is_not_found(shell):
    make_run(shell.runs, "a-0123456789")
    done = shell.run("submit", "h.toml", "--after", "b-0123456789")
    assert done.returncode == 4
    assert "b-0123456789" in done.stderr


def test_status_tells_what_waits_in_vain_and_what_helps(shell):
    first, second = (make_run(shell.runs, f"{name}-0123456789") for name in "ab")
    wait_for(second, first)
    assert examine(second).state is State.BLOCKED
    (row,) = json.loads(shell.run("status", "--json", second.path.name).stdout)["runs"]
    names = f"{first.path.name} {second.path.name}"
    words = f"waits for {first.path.name}, which nobody works on; vmcjob resume {names} goes on"
    assert (row["state"], row["message"]) == ("BLOCKED", words)


def test_status_draws_trees(shell):
    first = make_run(shell.runs, "a-0123456789")
    second = make_run(shell.runs, "b-0123456789")
    third = make_run(shell.runs, "c-0123456789")
    fourth = make_run(shell.runs, "d-0123456789")
    for child, parent in ((second, first), (third, second), (fourth, first)):
        child.write_spec_text(f'name = "b"\ntrain.start_from = "{parent.path.name}"\n')
    done = shell.run("status", "--tree")
    assert [line.partition("  R=1.4")[0].rstrip() for line in done.stdout.splitlines()[1:]] == [
        "a-0123456789",
        "├─ b-0123456789",
        "│  └─ c-0123456789",
        "└─ d-0123456789",
    ]
    done = shell.run("status", "--tree", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "spec.train.start_from of show tells" in done.stderr
