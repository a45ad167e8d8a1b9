"""status, logs and cancel, as users type them."""

import json
import os
import re
import time
from dataclasses import replace

from tests.cli.shell import busy_slot, finish
from tests.runs import make_run, sleeping_process
from vmcjob.cli.status import draw_screen
from vmcjob.rundir import (
    Activity,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Process,
    Submission,
    list_runs,
)
from vmcjob.runs.status import State, examine, rows

TITLES = ["run", "point", "seed", "state", "step", "energy", "accept", "left", "heartbeat", "note"]


def test_status_json_has_the_promised_shape(shell):
    finish(make_run(shell.runs, "h2-0000000000"))
    document = json.loads(shell.run("status", "--json").stdout)
    assert document["schema_version"] == 1
    (line,) = document["runs"]
    promised = {"run_id", "name", "state", "step", "n_steps", "phase", "energy", "error"}
    promised |= {"acceptance", "heartbeat_age_s", "job_id", "run_dir"}
    assert promised <= set(line)
    assert (line["run_id"], line["name"], line["state"]) == ("h2-0000000000", "h2", "FINISHED")
    assert (line["phase"], line["step"], line["n_steps"]) == ("done", 1000, 1000)
    assert (line["energy"], line["error"], line["acceptance"]) == (-1.174476, 0.000012, None)
    assert line["run_dir"] == str(shell.runs / "h2-0000000000")


def test_status_shows_one_aligned_line_per_run(shell):
    finish(make_run(shell.runs, "h2-0000000000", created=1.0))
    running = make_run(shell.runs, "benzene-1111111111", created=2.0)
    running.write_heartbeat(
        Heartbeat(
            phase=Activity.EVALUATE,
            step=312,
            n_steps=1000,
            energy=-231.5,
            error=0.3,
            acceptance=0.534,
            eta_s=80.0,
            time=time.time() - 1e-3,
        )
    )
    failed = make_run(shell.runs, "h2-2222222222", created=3.0)
    failed.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="the disk is full"))
    lines = shell.run("status").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "run",
        "h2-0000000000",
        "benzene-1111111111",
        "h2-2222222222",
    ]
    assert "finished  1000/1000" in lines[1]
    assert "running   evaluate 312/1000  -231.5(3)" in lines[2]
    assert "53%  1 min 20 s" in lines[2]
    assert lines[1].index(".174476(12)") == lines[2].index(".5(3)")
    assert lines[3].endswith("the disk is full")


def test_scripts_find_each_column_at_its_place(shell):
    """A column that comes and goes with the runs gives a script the wrong cell."""
    make_run(shell.runs, "h2-0000000000", created=1.0)
    (new,) = cut(shell.run("status").stdout)
    assert new == ["h2-0000000000", "R=1.4", "0", "new", "-", "-", "-", "-", "-", "-"]
    running = make_run(shell.runs, "h2-1111111111", created=2.0, seed=11)
    told = {"phase": Activity.TRAIN, "step": 3, "n_steps": 9, "energy": -1.17, "error": 0.03}
    running.write_heartbeat(Heartbeat(**told, acceptance=0.5, eta_s=80.0, time=time.time()))
    stopped = make_run(shell.runs, "h2-2222222222", created=3.0)
    stopped.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="no   space\nleft"))
    first, second, third = cut(shell.run("status").stdout)
    assert first == new
    begun = ["h2-1111111111", "R=1.4", "11", "running", "train 3/9", "-1.17(3)", "50%"]
    assert [*second[:7], second[7], second[9]] == [*begun, "1 min 20 s", "-"]
    assert [third[3], third[9]] == ["failed", "no space"]


def cut(table: str) -> list[list[str]]:
    """The cells below the titles, cut as the page on watching says; no line has others."""
    titles, *lines = [re.split("  +", line) for line in table.splitlines()]
    assert titles == TITLES
    assert {len(line) for line in lines} == {len(titles)}
    return lines


def test_status_without_runs_says_so_and_prints_nothing(shell):
    done = shell.run("status")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no runs in runs\n")
    assert json.loads(shell.run("status", "--json").stdout) == {"schema_version": 1, "runs": []}


def test_a_damaged_run_is_named_after_the_others_were_shown(shell):
    finish(make_run(shell.runs, "h2-0000000000"))
    make_run(shell.runs, "h2-1111111111").record_path.write_text("{")
    done = shell.run("status")
    assert done.returncode == 1
    assert "h2-0000000000" in done.stdout
    assert "h2-1111111111/run.json: damaged" in done.stderr


def test_watching_ends_when_nothing_more_happens(shell):
    run = make_run(shell.runs)
    with sleeping_process() as worker:
        process = Process.of_pid(worker.pid)
        run.write_heartbeat(
            Heartbeat(
                phase=Activity.TRAIN,
                step=1,
                n_steps=9,
                pid=process.pid,
                process_start=process.start,
            )
        )
        with shell.start("status", "--watch", "--json") as watch:
            assert watch.stdout is not None
            assert json.loads(watch.stdout.readline())["runs"][0]["state"] == "RUNNING"
            finish(run)
            states = [json.loads(line)["runs"][0]["state"] for line in watch.stdout]
            assert states[-1] == "FINISHED"
            assert set(states[:-1]) <= {"RUNNING"}
            assert watch.wait() == 0


def test_watching_on_a_terminal_gives_it_back_and_leaves_the_table(shell):
    finish(make_run(shell.runs))
    code, shown = shell.run_on_terminal("status", "-w")
    assert code == 0
    assert shown.index("\x1b[?1049h") < shown.index("\x1b[?1049l") < shown.index("finished")


def test_cancelling_takes_runs_out_of_the_queue(shell):
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
        done = shell.run("cancel", "h")
        assert done.stdout.count("taken out of the queue") == 2
        assert {examine(run).state for run in list_runs(shell.runs)} == {State.CANCELLED}
        assert shell.run("cancel", "h").stdout.count("not active (cancelled)") == 2
        shell.run("submit", "h.toml")
        told = json.loads(shell.run("cancel", "--json", "--wait", "h").stdout)["cancelled"]
        assert [item["run_id"] for item in told] == [r.path.name for r in list_runs(shell.runs)]
        assert [(item["was_active"], item["state"]) for item in told] == [(True, "CANCELLED")] * 2
        shell.run("submit", "h.toml")
        *_, first, second = shell.run("cancel", "--wait", "h").stdout.splitlines()
        assert [first.split()[-1], second.split()[-1]] == ["cancelled"] * 2


def test_a_run_on_another_host_is_cancelled_there(shell):
    """A SIGTERM to its pid would hit whoever has that pid here."""
    run = make_run(shell.runs)
    run.write_heartbeat(
        Heartbeat(phase=Activity.TRAIN, step=1, n_steps=9, host="elsewhere", pid=os.getpid())
    )
    done = shell.run("cancel", "h2")
    assert done.returncode == 5
    assert "runs on elsewhere; cancel it there" in done.stderr


def test_a_run_that_cannot_be_cancelled_does_not_save_the_others(shell):
    """Nor does it blame the scheduler, whose exit code would be 5."""
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
        broken, whole = list_runs(shell.runs)
        broken.record_path.write_text("{")
        done = shell.run("cancel", "h-*")
        assert done.returncode == 1
        assert done.stdout.splitlines()[1].split()[0] == whole.path.name
        assert "run.json: damaged" in done.stderr
        assert examine(whole).state is State.CANCELLED


def test_a_log_that_is_a_fifo_is_refused_and_not_waited_for(shell):
    run = finish(make_run(shell.runs))
    os.mkfifo(run.log_path)
    done = shell.run("logs", "h2")
    assert done.returncode == 1
    assert done.stderr.endswith("log.txt: cannot be read: Not a regular file\n")


def test_a_log_moves_no_cursor_and_turns_no_letters(shell):
    """Whatever a crash, or somebody else's program, has left in it."""
    run = finish(make_run(shell.runs))
    assert shell.run("logs", "h2").returncode == 4
    run.log_path.write_bytes(b"step 1\n\xff\x00 \x1b[2J \xe2\x80\xae \xc3\xa4 \xc2\x9b crash\n")
    for options in ([], ["-f"]):
        done = shell.run("logs", *options, "h2")
        assert done.returncode == 0
        assert done.stdout == "step 1\n\\xff\\x00 \\x1b[2J \\u202e ä \\x9b crash\n"


def test_every_rank_has_a_log_of_its_own(shell):
    run = finish(make_run(shell.runs))
    run.log_path.write_text("of the first\n")
    run.log_path_of(1).write_text("of the second\n")
    assert shell.run("logs", "h2").stdout == "of the first\n"
    assert shell.run("logs", "--rank", "1", "h2").stdout == "of the second\n"
    assert shell.run("logs", "-f", "--rank", "1", "h2").stdout == "of the second\n"
    done = shell.run("logs", "--rank", "2", "h2")
    assert done.returncode == 4
    assert "rank 2 of h2-0123456789 has not said anything yet" in done.stderr


def test_logs_of_several_runs_are_refused_with_their_names(shell):
    for number in range(5):
        make_run(shell.runs, f"h2-{number:010}", created=float(number))
    done = shell.run("logs", "h2")
    assert done.returncode == 2
    assert "names 5 runs (h2-0000000000, h2-0000000001, h2-0000000002, ...);" in done.stderr


def test_a_followed_log_grows_until_the_run_ends(shell):
    run = make_run(shell.runs)
    run.log_path.write_text("first\n")
    with sleeping_process() as worker:
        process = Process.of_pid(worker.pid)
        run.write_heartbeat(
            Heartbeat(
                phase=Activity.TRAIN,
                step=1,
                n_steps=9,
                pid=process.pid,
                process_start=process.start,
            )
        )
        with shell.start("logs", "-f", "h2") as logs:
            assert logs.stdout is not None
            assert logs.stdout.readline() == "first\n"
            with open(run.log_path, "a") as log:
                log.write("second\n")
            assert logs.stdout.readline() == "second\n"
            os.replace(run.log_path, run.log_of(0).previous)  # it has become too large
            with open(run.log_path, "a") as log:
                log.write("last words\n")
            finish(run)
            assert logs.stdout.read() == "last words\n"
            assert logs.wait() == 0


def test_rerun_puts_aside_what_has_ended_and_refuses_what_has_not(shell):
    with busy_slot(shell.runs):
        shell.run("submit", "h.toml")
        done = shell.run("rerun", "h")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count(": queued; cancel it first, or wait\n") == 2
        shell.run("cancel", "h")
        for run in list_runs(shell.runs):
            finish(run)
        done = shell.run("rerun", "--json", "h")
        items = json.loads(done.stdout)["submitted"]
        assert len(items) == 2
        assert {os.path.dirname(item["put_aside"]) for item in items} == {f"{shell.runs}/.old"}
        shown = shell.run("show", items[0]["put_aside"])
        assert "state      finished" in shown.stdout
        done = shell.run("resume", items[0]["put_aside"])
        assert done.returncode == 2
        assert "has been put aside or renamed; it can only be looked at" in done.stderr


def test_resuming_runs_of_several_roots_is_one_answer(shell):
    """One JSON document, also where something stands in the way of the second root's."""
    roots = [shell.cwd / name for name in ("first", "second")]
    with busy_slot(roots[0]), busy_slot(roots[1]):
        for root in roots:
            shell.run("submit", "--runs", str(root), "h.toml")
            shell.run("cancel", "--runs", str(root), "h")
        runs = [run for root in roots for run in list_runs(root)]
        names = [str(run.path) for run in runs]
        drawn = json.loads(shell.run("resume", "-n", "--json", *names).stdout)
        assert [item["run_dir"] for item in drawn["submitted"]] == names
        assert drawn["dry_run"] is True
        spec = runs[-1].read_spec_text()
        runs[-1].write_spec_text(spec.replace("nodes = 1", "nodes = 2"))
        done = shell.run("resume", "--json", *names)
        assert done.returncode == 5
        assert "asks for 2 nodes" in done.stderr
        assert [item["run_dir"] for item in json.loads(done.stdout)["submitted"]] == names[:2]
        runs[-1].write_spec_text(spec)
        done = shell.run("resume", *names)
        assert done.returncode == 0
        assert [done.stdout.count(word) for word in ("submitted", "skipped: queued")] == [2, 2]
        assert done.stderr.count("vmcjob status") == 1
    for run in runs:
        finish(run)
    followed = shell.run("resume", "--follow", *names).stdout.splitlines()
    assert ["-1.174476(12)" in line for line in followed[-5:]] == [False, *[True] * 4]


def test_what_a_job_said_is_kept_apart_from_what_its_worker_said(shell):
    """A worker that was never started has no log; why is in that of its job."""
    run = make_run(shell.runs, "h2-0000000000")
    for options in ([], ["-f"]):
        done = shell.run("logs", "--err", *options, "h2")
        assert done.returncode == 2
        assert "h2-0000000000: was not given to SLURM; vmcjob logs without --err" in done.stderr
    submission = Submission(
        scheduler="slurm", job_id="22_3", job_name="h2-ab", array_index=3, started_at=1.0
    )
    run.write_submission(submission)
    finish(run)
    done = shell.run("logs", "--err", "h2")
    assert done.returncode == 4
    assert "h2-0000000000: its job has not said anything yet" in done.stderr
    folder = shell.runs / ".slurm" / "h2-ab"
    folder.mkdir(parents=True)
    (folder / "22_3_0_log.err").write_bytes(b"srun: error: \xff\n")
    (folder / "22_3_0_log.out").write_text("submitit INFO\n")
    (folder / "22_4_0_log.err").write_text("another run\n")
    for options in ([], ["-f"]):
        done = shell.run("logs", "--err", *options, "h2")
        assert done.returncode == 0
        assert done.stdout == "srun: error: \\xff\nsubmitit INFO\n"
    (folder / "22_3_1_log.err").write_text("killed\n")
    assert shell.run("logs", "--err", "--rank", "1", "h2").stdout == "killed\n"
    assert shell.run("logs", "--err", "h2").stdout.startswith("srun: error: \\xff\nkilled\n")
    done = shell.run("logs", "--err", "--rank", "2", "h2")
    assert done.returncode == 4
    assert "h2-0000000000: its job has not said anything beside rank 2 yet" in done.stderr


def test_a_screen_shows_what_works_before_what_waits(tmp_path, monkeypatch):
    """Of 29 runs the newest 21 were shown, and the one that was running was the oldest."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))
    running = make_run(tmp_path, "h2-aaaaaaaaaa")
    waiting = [make_run(tmp_path, f"h2-{number:010}") for number in range(28)]
    found, _ = rows([running, *waiting])
    found = [replace(found[0], state=State.RUNNING)] + [
        replace(row, state=State.QUEUED) for row in found[1:]
    ]
    lines = draw_screen(found).splitlines()
    assert len(lines) <= 23
    assert lines[1].startswith("h2-aaaaaaaaaa")
    assert lines[2].startswith("h2-0000000009")
    assert lines[-2].startswith("h2-0000000027")
    assert lines[-1] == "and 9 queued"
    assert draw_screen(found[:5]).splitlines()[-1].startswith("h2-0000000003")
