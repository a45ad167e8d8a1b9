"""A disk that fails under a running worker, and two workers that are started at once."""

import errno
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.run import fake
from tests.run.harness import assert_same, finish, has_committed, make_run, results, start
from tests.runs import make_run as make_idle_run
from vmcjob.rundir import Outcome, RunDir
from vmcjob.store import RunStore

# A worker where every call of one kind fails below the store once the file "broken" is there.
FAULTY = """
import os, sys
from pathlib import Path
operation, code, run = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])

def is_hit(path):
    return "run.zarr" in str(path) and (run.parent / "broken").exists()

def break_on(owner, name, path_of):
    call = getattr(owner, name)
    def broken(*arguments, **options):
        if is_hit(path_of(*arguments)):
            raise OSError(code, os.strerror(code))
        return call(*arguments, **options)
    setattr(owner, name, broken)

if operation == "open":
    break_on(Path, "open", lambda path, mode="r", *_: path if mode == "wb" else "")
elif operation == "fsync":
    break_on(os, "fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
else:
    break_on(Path, "replace", lambda path, target: target)

sys.argv = ["vmcjob", str(run)]
from tests.run import fake
fake.main()
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """One run from beginning to end."""
    run = make_run(tmp_path_factory.mktemp("undisturbed"))
    code, log = finish(start(run, program=fake.PROGRAM))
    assert code == 0, log
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "number"),
    [("open", errno.EACCES), ("fsync", errno.EIO), ("rename", errno.ENOSPC)],
)
def test_a_run_whose_disk_failed_says_so_and_resumes_to_the_same_bits(
    operation: str, number: int, undisturbed: RunDir, tmp_path: Path
) -> None:
    """FAILED, exit code 1, one sentence; when the disk is well again, nothing is missing."""
    run = make_run(tmp_path)
    worker = start(run, program=("-c", FAULTY, operation, str(number)))
    has_begun = has_committed(run, "train", 5)
    while not has_begun():
        assert worker.poll() is None
    (tmp_path / "broken").touch()
    exit_code, log = finish(worker)
    outcome = run.read_outcome()
    assert exit_code == 1
    assert "Traceback" not in log
    assert outcome is not None
    assert outcome.outcome is Outcome.FAILED
    assert f"run.zarr: cannot commit: [Errno {number}] {os.strerror(number)}" in outcome.message
    assert 5 <= RunStore.open(run.store_path).n_committed["train"] <= 60
    (tmp_path / "broken").unlink()
    assert finish(start(run, program=fake.PROGRAM))[0] == 0
    assert_same(results(run), results(undisturbed))


# The worker of each run that is named on standard input, with an attempt that computes nothing
# until the file "gate" is there; then its exit code, or why it was refused.
RACER = """
import sys, time, types
from pathlib import Path

def attempt(run, stop, heartbeat):
    while not (run.path / "gate").exists():
        time.sleep(0.001)
    return ""

sys.modules["vmcjob.run.attempt"] = types.SimpleNamespace(attempt=attempt, join=lambda rank: None)
from vmcjob.errors import RunDirError
from vmcjob.run import main

for line in sys.stdin:
    try:
        print(main(Path(line.strip())), flush=True)
    except RunDirError as error:
        print(error, flush=True)
"""


@pytest.mark.slow
def test_of_two_workers_started_at_once_exactly_one_runs(tmp_path: Path) -> None:
    """Twenty times: the other one names it, at once, and leaves everything to it."""
    first, second = start_racer(), start_racer()
    try:
        for number in range(20):
            run = make_idle_run(tmp_path, f"h2-{number:010}")
            for worker in (first, second):
                tell(worker, f"{run.path}\n")
            loser = first if is_first_to_speak(first, second) else second
            winner = second if loser is first else first
            refusal = f"{run.path}: already being run by pid {winner.pid} on host "
            assert heard(loser).startswith(refusal)
            (run.path / "gate").touch()
            assert heard(winner) == "0\n"
            assert [event["event"] for event in run.read_attempts()] == ["start", "end"]
            outcome = run.read_outcome()
            assert outcome is not None
            assert outcome.outcome is Outcome.FINISHED
    finally:
        for worker in (first, second):
            worker.kill()
            worker.communicate()


def start_racer() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RACER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def tell(worker: subprocess.Popen[bytes], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line.encode())
    worker.stdin.flush()


def heard(worker: subprocess.Popen[bytes]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().decode()


def is_first_to_speak(first: subprocess.Popen[bytes], second: subprocess.Popen[bytes]) -> bool:
    """Whether it is the first; within two minutes, for the loser must not wait for the winner."""
    outputs = [worker.stdout for worker in (first, second) if worker.stdout]
    ready, _, _ = select.select(outputs, [], [], 120.0)
    assert ready
    return first.stdout in ready


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a run and little more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is for root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_a_run_which_resumes_when_there_is_room(
    undisturbed: RunDir, small_disk: Path
) -> None:
    """Filled to the last byte under a working run: exit code 1, a sentence, and nothing lost."""
    run = make_run(small_disk)
    worker = start(run, program=fake.PROGRAM)
    has_begun = has_committed(run, "train", 5)
    while not has_begun():
        assert worker.poll() is None
    fill(small_disk / "filler")
    exit_code, log = finish(worker)
    assert exit_code == 1
    assert "Traceback" not in log
    assert os.strerror(errno.ENOSPC) in log
    assert 5 <= RunStore.open(run.store_path).n_committed["train"] <= 60
    (small_disk / "filler").unlink()
    assert finish(start(run, program=fake.PROGRAM))[0] == 0
    assert_same(results(run), results(undisturbed))


def fill(path: Path) -> None:
    """Write until nothing more fits; what others free meanwhile is taken too."""
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
