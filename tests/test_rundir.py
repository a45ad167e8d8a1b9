"""The run directory: whole files, one worker at a time, and selectors that never guess."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs import make_record, make_run, sleeping_process, wait_until
from vmcjob.errors import NotFoundError, RunDirError, UsageError
from vmcjob.rundir import (
    Activity,
    Heartbeat,
    Outcome,
    OutcomeRecord,
    Process,
    RunDir,
    Submission,
    list_runs,
    select,
)
from vmcjob.rundir.records import decode, encode


def test_creating_the_same_run_twice_keeps_the_first_directory(tmp_path):
    """Submitting twice is harmless: record and files of the first stay as they were."""
    first = make_run(tmp_path / "runs", created=1.0)
    first.log_path.write_text("precious")
    second = make_run(tmp_path / "runs", created=2.0)
    assert second == first
    assert second.read_record().created == 1.0
    assert second.log_path.read_text() == "precious"
    assert second.read_spec_text() == 'name = "h2"\n'


def test_a_directory_of_another_run_is_refused(tmp_path):
    """Equal names with other science would mix two series of energies."""
    make_run(tmp_path)
    with pytest.raises(RunDirError, match="holds another run"):
        make_run(tmp_path, science_sha256="cd" * 32)


def test_a_foreign_directory_in_the_way_is_refused_and_left_alone(tmp_path):
    (tmp_path / "h2-0123456789").mkdir()
    (tmp_path / "h2-0123456789" / "thesis.tex").write_text("chapter 1")
    with pytest.raises(RunDirError, match="cannot be made"):
        make_run(tmp_path)
    assert os.listdir(tmp_path) == ["h2-0123456789"]
    assert os.listdir(tmp_path / "h2-0123456789") == ["thesis.tex"]


def test_what_a_killed_creator_left_is_swept(tmp_path):
    """In time: somebody who is only slow keeps theirs."""
    old, young = (tmp_path / f".h2-0123456789.{digit * 8}" for digit in "ab")
    for folder in (old, young):
        folder.mkdir()
    os.utime(old, (0, 0))
    run = make_run(tmp_path)
    assert set(tmp_path.iterdir()) == {young, run.path}


def test_a_runs_root_that_is_a_file_is_refused_with_its_path(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunDirError, match=r"runs/h2-0123456789: cannot be made"):
        make_run(tmp_path / "runs")


def test_many_creators_at_once_make_one_directory_and_leave_nothing_behind(tmp_path):
    """The rename is the only step that counts; everybody else finds the winner's directory."""
    barrier = threading.Barrier(8)
    made: list[RunDir] = []

    def create() -> None:
        barrier.wait()
        made.append(make_run(tmp_path))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert os.listdir(tmp_path) == ["h2-0123456789"]


def test_opening_what_is_no_run_says_so(tmp_path):
    with pytest.raises(NotFoundError, match="there is no such run"):
        RunDir.open(tmp_path / "absent")
    with pytest.raises(NotFoundError, match="is not a run directory"):
        RunDir.open(tmp_path)


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    step=st.integers(0, 10**12),
    energy=st.none() | finite,
    phase=st.sampled_from(Activity),
    host=st.text(),
)
def test_a_heartbeat_survives_its_file(step, energy, phase, host):
    heartbeat = Heartbeat(phase=phase, step=step, n_steps=10, energy=energy, host=host)
    assert decode(Heartbeat, encode(heartbeat)) == heartbeat


@pytest.mark.parametrize("energy", [float("nan"), float("inf"), -float("inf")])
def test_an_energy_that_is_no_number_is_unknown(energy):
    """NaN is not JSON: strict parsers (jq, browsers) refuse a file that holds it."""
    text = encode(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=2, energy=energy))
    assert json.loads(text, parse_constant=pytest.fail)["energy"] is None


def test_records_survive_their_files(tmp_path):
    run = make_run(tmp_path)
    submission = Submission(scheduler="local", job_id="local-7", pid=7, process_start=99)
    outcome = OutcomeRecord(outcome=Outcome.PREEMPTED, message="stopped at step 40 °")
    run.write_submission(submission)
    run.write_outcome(outcome)
    assert run.read_submission() == submission
    assert run.read_outcome() == outcome
    assert run.read_record() == make_record(created=run.read_record().created)
    run.clear_submission()
    run.clear_outcome()
    run.clear_outcome()
    assert run.read_submission() is None
    assert run.read_outcome() is None


def test_fields_of_a_newer_version_are_left_aside():
    text = encode(OutcomeRecord(outcome=Outcome.FINISHED, time=1.0))
    newer = json.dumps(json.loads(text) | {"mood": "glad"})
    assert decode(OutcomeRecord, newer) == OutcomeRecord(outcome=Outcome.FINISHED, time=1.0)


DAMAGED = [
    b"",
    b'{"phase": "tra',
    b"[]",
    b"null",
    b"\xff\xfe\x00",
    b'{"phase": "train"}',
    b'{"phase": "sleeping", "step": 1, "n_steps": 2}',
    b'{"phase": "train", "step": "1", "n_steps": 2}',
    b'{"phase": [1], "step": 1, "n_steps": 2}',
    b'{"phase": "train", "step": true, "n_steps": 2}',
    b'{"phase": "train", "step": 1, "n_steps": 2}',  # says nothing about who and when
    b"[" * 100_000,
    b'{"phase": "train", "step": ' + b"9" * 5000 + b"}",
]
ODD_NUMBERS = [b"9" * 400, b"-" + b"9" * 20, b"NaN", b"1e999", b"true"]


@pytest.mark.parametrize("number", ODD_NUMBERS)
@pytest.mark.parametrize("field", ["step", "energy", "time", "pid"])
def test_a_number_beyond_all_use_is_damage(field, number):
    """An integer of 400 digits is valid JSON, and breaks everything that calculates with it."""
    text = encode(Heartbeat(phase=Activity.TRAIN, step=1, n_steps=2))
    changed = json.dumps(json.loads(text) | {field: "?"}).replace('"?"', number.decode())
    with pytest.raises(ValueError, match=f"'{field}' cannot be"):
        decode(Heartbeat, changed)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_heartbeat_is_no_heartbeat(tmp_path, content):
    """A disk-full or hand-edited file must not take `status` of all other runs down."""
    run = make_run(tmp_path)
    run.heartbeat_path.write_bytes(content)
    assert run.read_heartbeat() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"run_id": 3}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_is_an_error_with_its_path_and_a_way_out(tmp_path, content):
    run = make_run(tmp_path)
    run.record_path.write_bytes(content)
    with pytest.raises(RunDirError, match=r"h2-0123456789/run\.json: damaged: .*; .* move") as said:
        run.read_record()
    assert not any(word in str(said.value) for word in ("char", "codec", "delimiter"))


def replace_by_directory(path: Path) -> None:
    path.mkdir()


def replace_by_endless_file(path: Path) -> None:
    path.symlink_to("/dev/zero")


def replace_by_huge_file(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(2**40)


REPLACEMENTS = [os.mkfifo, replace_by_directory, replace_by_endless_file, replace_by_huge_file]


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_what_stands_in_the_place_of_a_file_is_neither_waited_for_nor_read(tmp_path, replace):
    """A FIFO makes its reader wait for ever, and /dev/zero never ends."""
    run = make_run(tmp_path)
    for path in (run.record_path, run.spec_path, run.heartbeat_path, run.attempts_path):
        path.unlink(missing_ok=True)
        replace(path)
    assert run.read_heartbeat() is None
    assert run.read_attempts() == []
    for read in (run.read_record, run.read_spec_text):
        with pytest.raises(RunDirError, match="cannot be read: "):
            read()
    assert list_runs(tmp_path) == [run]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_run_directory_that_is_closed_to_us_is_named(tmp_path):
    """Somebody else's run in a shared root is not silently left out; lost+found is."""
    run = make_run(tmp_path)
    (tmp_path / "lost+found").mkdir(mode=0)
    run.path.chmod(0)
    try:
        assert list_runs(tmp_path) == [run]
        with pytest.raises(RunDirError, match=r"run\.json: cannot be read: Permission denied"):
            RunDir.open(run.path).read_record()
        with pytest.raises(RunDirError, match=r"log\.txt: cannot be read: Permission denied"):
            list(run.read_log())
    finally:
        run.path.chmod(0o700)


def test_a_reader_never_sees_half_a_heartbeat(tmp_path):
    """Catches a plain overwrite, which leaves the file empty or short between two calls."""
    run = make_run(tmp_path)
    run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=0, n_steps=200))
    stop = threading.Event()
    seen: list[Heartbeat | None] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(run.read_heartbeat())

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(200):
        run.write_heartbeat(Heartbeat(phase=Activity.TRAIN, step=step, n_steps=200))
    stop.set()
    reader.join()
    assert seen
    assert None not in seen
    assert not [name for name in os.listdir(run.path) if name.startswith(".")]


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(tmp_path):
    run = RunDir(tmp_path / "gone")
    with pytest.raises(RunDirError, match=r"gone/outcome\.json: cannot be written: No such file"):
        run.write_outcome(OutcomeRecord(outcome=Outcome.FINISHED))
    with pytest.raises(RunDirError, match=r"gone/attempts\.jsonl: cannot be written: No such file"):
        run.append_attempt("start")


def test_the_history_of_attempts_is_appended_and_skips_a_line_cut_short(tmp_path):
    run = make_run(tmp_path)
    assert run.read_attempts() == []
    run.append_attempt("start", devices=2)
    with open(run.attempts_path, "a") as file:
        file.write('{"event": "sta\n')
    run.append_attempt("end", outcome=Outcome.FINISHED)
    start, end = run.read_attempts()
    assert (start["event"], start["devices"], start["pid"]) == ("start", 2, os.getpid())
    assert (end["event"], end["outcome"]) == ("end", "FINISHED")


LOCK_AND_WAIT = """
import sys, time
from pathlib import Path
from vmcjob.rundir import RunDir
with RunDir(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_worker_is_told_who_the_first_is_and_a_killed_one_frees_the_lock(tmp_path):
    """The kernel owns the lock, so SIGKILL leaves nothing to clean up."""
    run = make_run(tmp_path)
    command = [sys.executable, "-c", LOCK_AND_WAIT, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        refusal = f"already being run by pid {worker.pid} on host {os.uname().nodename}"
        with pytest.raises(RunDirError, match=refusal), run.lock():
            pytest.fail("two workers in one run")
        worker.kill()
        worker.wait()
    with run.lock():
        pass
    with run.lock():
        pass


def test_a_lock_that_is_freed_in_time_is_had(tmp_path, monkeypatch):
    """A file server frees the lock of a lost node after its job has come back elsewhere."""
    run = make_run(tmp_path)
    command = [sys.executable, "-c", LOCK_AND_WAIT, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        monkeypatch.setattr("vmcjob.rundir.lock.time.sleep", lambda seconds: worker.kill())
        with run.lock(patience_s=60.0):
            assert worker.wait() != 0


def test_locking_a_run_that_is_gone_is_an_error_with_its_path(tmp_path):
    with (
        pytest.raises(RunDirError, match="absent/lock: cannot be opened"),
        RunDir(tmp_path / "absent").lock(),
    ):
        pytest.fail("locked nothing")


def test_a_process_is_alive_until_it_is_killed_even_before_it_is_reaped():
    """A zombie keeps its pid and answers signal 0; it must count as dead."""
    with sleeping_process() as sleeper:
        process = Process.of_pid(sleeper.pid)
        assert process.is_alive() is True
        os.kill(sleeper.pid, signal.SIGKILL)
        wait_until(lambda: not process.is_alive(), "the zombie counts as dead")
        os.kill(sleeper.pid, 0)  # it is still there


def test_a_reused_pid_is_not_taken_for_the_old_process():
    mine = Process.of_pid(os.getpid())
    assert mine.is_alive() is True
    if mine.start is None:
        pytest.skip("this system tells no start times")
    assert Process(mine.host, mine.pid, mine.start - 1).is_alive() is False


def test_a_process_of_another_host_can_be_neither_alive_nor_dead():
    assert Process("elsewhere", os.getpid(), None).is_alive() is None


def test_terminating_spares_whoever_got_the_pid_of_a_dead_process():
    """`cancel` must not end a stranger: same pid, other start time."""
    with sleeping_process() as stranger:
        process = Process.of_pid(stranger.pid)
        if process.start is None:
            pytest.skip("this system tells no start times")
        dead = Process(process.host, process.pid, process.start - 1)
        assert dead.terminate() is False
        assert stranger.poll() is None
        assert process.terminate() is True
        assert stranger.wait() == -signal.SIGTERM
        assert process.terminate() is False


def test_terminating_works_without_process_handles(monkeypatch):
    """Kernels before 5.3 and some sandboxes do not give them."""

    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, f"no handle of {pid}")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    with sleeping_process() as sleeper:
        assert Process.of_pid(sleeper.pid).terminate() is True
        assert sleeper.wait() == -signal.SIGTERM


def test_terminating_never_reaches_another_host_or_ourselves():
    """A pid of 0 or -1 would mean a whole group of processes."""
    host = os.uname().nodename
    assert Process("elsewhere", os.getpid(), None).terminate() is False
    assert Process(host, 0, None).terminate() is False
    assert Process(host, -1, None).terminate() is False


def test_a_pid_that_nobody_has_is_dead():
    assert Process(os.uname().nodename, 2**31 - 1, None).is_alive() is False


@pytest.fixture
def root(tmp_path) -> Path:
    for created, run_id in enumerate(["he-aaaa000000", "h2-bbbb000000", "h2-bbcc000000"]):
        make_run(tmp_path / "runs", run_id, created=float(created))
    return tmp_path / "runs"


def names(runs: list[RunDir]) -> list[str]:
    return [run.path.name for run in runs]


def test_runs_are_listed_oldest_first_and_only_runs(root):
    (root / "notes").mkdir()
    (root / ".local").mkdir()
    (root / "README").write_text("")
    assert names(list_runs(root)) == ["he-aaaa000000", "h2-bbbb000000", "h2-bbcc000000"]
    assert list_runs(root / "absent") == []
    assert list_runs(root / "README") == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("h2-bbcc000000", ["h2-bbcc000000"]),
        ("h2-bbc", ["h2-bbcc000000"]),
        ("he", ["he-aaaa000000"]),
        ("h2", ["h2-bbbb000000", "h2-bbcc000000"]),
        ("h*", ["he-aaaa000000", "h2-bbbb000000", "h2-bbcc000000"]),
        ("h2-bb[c]*", ["h2-bbcc000000"]),
        ("h2 R=1.4", ["h2-bbbb000000", "h2-bbcc000000"]),  # a row of a table, its seeds
        ("h2 R=1.40", ["h2-bbbb000000", "h2-bbcc000000"]),  # the same number
        ("h2 R=1*", ["h2-bbbb000000", "h2-bbcc000000"]),  # rows
    ],
)
def test_a_selector_is_an_id_a_beginning_a_name_or_a_glob(root, selector, expected):
    assert names(select(root, [selector])) == expected


@pytest.mark.parametrize("value", [2, 2.0])
@pytest.mark.parametrize("selector", ["h2 R=2", "h2 R=2.0", "h2 R=2.00", "h2 R=2e0"])
def test_a_number_in_a_row_s_name_may_be_spelled_in_any_way(tmp_path, selector, value):
    """A sweep over 1 and 2 has whole numbers, a sweep over 1.0 and 2.0 does not: users forget."""
    make_run(tmp_path, "h2-bbbb000000", point={"R": value})
    make_run(tmp_path, "h2-cccc000000", point={"R": 20})
    assert names(select(tmp_path, [selector])) == ["h2-bbbb000000"]


def test_a_selector_may_be_a_path_and_names_the_same_run_once(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    selectors = ["runs/h2-bbbb000000/", str(root / "h2-bbbb000000"), "h2-bbb"]
    assert names(select(root, selectors)) == ["h2-bbbb000000"]
    assert names(select(root / "absent", ["./runs/he-aaaa000000"])) == ["he-aaaa000000"]


def test_a_name_wins_over_a_beginning(root):
    """`h2` must stay reachable when `h2-stretched` exists too."""
    make_run(root, "h2-stretched-dddd000000", name="h2-stretched")
    assert names(select(root, ["h2"])) == ["h2-bbbb000000", "h2-bbcc000000"]


def test_the_beginning_of_several_ids_is_refused_with_their_names(root):
    with pytest.raises(UsageError, match=r"'h2-' could be any of 2 runs \(h2-bbbb000000, h2-bbcc"):
        select(root, ["h2-"])


ODD = ["", " ", "[", "h2[", "*?[", "@", "../runs", "/", "é\udcff", "x" * 5000, "--", "h2\n"]


@pytest.mark.parametrize("selector", ODD)
def test_odd_selectors_match_nothing_and_say_so(root, selector):
    """In particular the empty one must not mean everything: `vmcjob cancel "$UNSET"`."""
    with pytest.raises(NotFoundError, match="no run matches"):
        select(root, [selector])


def test_no_selector_means_all_runs(root):
    assert names(select(root, [])) == names(list_runs(root))


def test_last_means_all_runs_of_the_latest_submission(root):
    """A sweep is submitted together. A local job id is a pid, so an old one may return."""
    with pytest.raises(NotFoundError, match="no run has been submitted"):
        select(root, ["@last"])
    old = Submission(scheduler="local", job_id="local-9", pid=9, process_start=1, submitted_at=5.0)
    new = Submission(scheduler="local", job_id="local-9", pid=9, process_start=2, submitted_at=6.0)
    first, second, third = list_runs(root)
    first.write_submission(old)
    second.write_submission(new)
    third.write_submission(new)
    assert names(select(root, ["@last"])) == ["h2-bbbb000000", "h2-bbcc000000"]


def test_a_run_with_a_damaged_record_is_still_listed_and_found_by_its_id(root):
    """Otherwise it would vanish from `status`, and nobody would know that it is broken."""
    RunDir(root / "he-aaaa000000").record_path.write_text("{")
    assert names(list_runs(root))[0] == "he-aaaa000000"
    assert names(select(root, ["he-aaaa000000"])) == ["he-aaaa000000"]
