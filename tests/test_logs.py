"""Logs do not grow for ever, lose nothing while they turn, and are read as if they were one."""

import os
import subprocess
import sys

import pytest

from tests.runs import make_run, wait_until
from vmcjob.errors import NotFoundError
from vmcjob.rundir import LogReader, RunDir
from vmcjob.rundir.log import MAX_BYTES

# Counts as fast as it can, on both streams, and turns its log over whenever it has become large; a
# reader who says in a file how many bytes it has read is waited for, one turn behind.
COUNTER = """
import os, sys, time
from pathlib import Path
from vmcjob.rundir import RunDir

log = RunDir(Path(sys.argv[1])).log_of(0)
n_turns = n_written = n_awaited = 0
for number in range(6_000):
    n_written += os.write(1 + number % 2, b"%d\\n" % number)
    while sys.argv[2:] and int(Path(sys.argv[2]).read_text() or 0) < n_awaited:
        time.sleep(0.001)
    if log.turn_over(limit=5_000):
        n_turns, n_awaited = n_turns + 1, n_written
sys.exit(n_turns)
"""
# What `vmcjob run` does about its log, around a library that will not stop talking.
TALKER = """
import os, sys, time
from pathlib import Path
from vmcjob.run.log import bounded
from vmcjob.rundir import RunDir

run = RunDir(Path(sys.argv[1]))
with bounded(run.log_of(0)):
    for _ in range(20):
        os.write(2, b"x" * 1024**2)
    while not run.log_of(0).previous.exists():
        time.sleep(0.05)
    print("still here", flush=True)
"""


@pytest.fixture
def run(tmp_path) -> RunDir:
    return make_run(tmp_path)


def start(run: RunDir, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A worker, started as supervisors and launchers start theirs."""
    with open(run.log_path, "ab") as log:
        command = [sys.executable, "-c", program, str(run.path), *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def turn(run: RunDir) -> None:
    log = run.log_of(0)
    os.replace(log.current, log.previous)


@pytest.mark.slow
def test_a_reader_that_keeps_up_gets_every_line_once_whenever_the_log_turns(run, tmp_path):
    reader, read, progress = LogReader(run.log_of(0)), b"", tmp_path / "n_read"
    progress.write_text("0")
    with start(run, COUNTER, str(progress)) as worker:
        while worker.poll() is None:
            read += b"".join(run.read_log(0, reader))
            progress.write_text(str(len(read)))
    read += b"".join(run.read_log(0, reader))
    assert worker.returncode >= 4  # turns
    assert read.split() == [b"%d" % number for number in range(6_000)]


def test_what_is_kept_is_the_end_and_no_more_than_two_files_full(run):
    with start(run, COUNTER) as worker:
        worker.wait()
    log = run.log_of(0)
    sizes = [path.stat().st_size for path in (log.previous, log.current)]
    assert all(size < 5_100 for size in sizes)
    numbers = [int(word) for word in b"".join(run.read_log()).split()]
    assert numbers == list(range(numbers[0], 6_000))
    assert run.log_files() == [log.previous, log.current]


def test_a_worker_turns_its_log_over_by_itself(run):
    with start(run, TALKER) as worker:
        assert worker.wait(60) == 0
    log = run.log_of(0)
    assert log.current.read_bytes() == b"still here\n"
    assert log.previous.stat().st_size == 20 * 1024**2 > MAX_BYTES


def test_what_does_not_go_to_the_log_is_left_alone(run, tmp_path):
    """Started by hand, a worker talks to a terminal, or to a file of its user's."""
    run.log_path.write_text("of the attempt before")
    own = tmp_path / "own.txt"
    with open(own, "ab") as log:
        command = [sys.executable, "-c", COUNTER, str(run.path)]
        assert subprocess.run(command, stdout=log, stderr=log, timeout=60).returncode == 0
    assert len(own.read_bytes().split()) == 6_000
    assert run.log_path.read_text() == "of the attempt before"


def test_reading_on_goes_across_one_turn_or_several(run):
    reader = LogReader(run.log_of(0))

    def read() -> bytes:
        return b"".join(run.read_log(0, reader))

    with pytest.raises(NotFoundError, match="has not said anything yet"):
        read()
    run.log_path.write_bytes(b"a")
    assert read() == b"a"
    with open(run.log_path, "ab") as log:
        log.write(b"b")
    turn(run)
    assert read() == b"b"  # nobody has written since
    run.log_path.write_bytes(b"c")
    assert (read(), read()) == (b"c", b"")
    for piece in (b"lost", b"d", b"e"):  # faster than anybody reads
        turn(run)
        run.log_path.write_bytes(piece)
    assert read() == b"de"


def test_an_attempt_after_the_turn_goes_on_in_the_new_file(run):
    """The older file is there, the younger was not begun: a kill came in between."""
    run.log_path.write_text("before\n")
    turn(run)
    assert b"".join(run.read_log()) == b"before\n"
    with start(run, "print('after')") as worker:
        worker.wait()
    wait_until(lambda: b"".join(run.read_log()) == b"before\nafter\n", "both are read")


def test_every_rank_has_a_predecessor_of_its_own(run):
    names = {path.name for rank in (0, 1) for path in vars(run.log_of(rank)).values()}
    assert names == {"log.txt", "log.old.txt", "log-1.txt", "log-1.old.txt"}
