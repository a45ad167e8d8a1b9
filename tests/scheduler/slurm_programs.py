"""SLURM's programs as one stand-in: started as `slurm_programs.py STATE PROGRAM ARGUMENTS…`.

It keeps its jobs in the file STATE, so that what one program is told, the others know.
"""

import fcntl
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NODES = "n1\nn2"


def sbatch(state: dict[str, Any], arguments: list[str]) -> int:
    """Take a job or an array, unless told to refuse; `is_deaf`: take it and seem not to."""
    if "--test-only" in arguments:
        return 0
    if state["is_refusing"]:
        sys.stderr.write("sbatch: error: Batch job submission failed: no\n")
        return 1
    script = Path(arguments[-1]).read_text()
    found = re.search(r"--job-name=(\S+)", script)
    assert found is not None
    number = state["next"] = state["next"] + 1
    array = re.search(r"--array=0-(\d+)", script)
    ids = [f"{number}_{n}" for n in range(int(array[1]) + 1)] if array else [str(number)]
    for job_id in ids:
        state["jobs"][job_id] = {"name": found[1], "state": "PENDING", "restarts": 0} | {
            "reason": "Priority"
        }
    if state["is_deaf"]:
        sys.stderr.write("sbatch: error: Unexpected message received\n")
        return 1
    sys.stdout.write(f"Submitted batch job {number}\n")
    return 0


def squeue(state: dict[str, Any], arguments: list[str]) -> int:
    """All jobs, or when the wall time of one ends."""
    if "--format=%A %e %l" in arguments:
        for job_id in state["jobs"] if state["end_time"] else ():  # silent, until told
            sys.stdout.write(f"{job_id} {state['end_time']} UNLIMITED\n")
        return 0
    for job_id, job in state["jobs"].items():
        sys.stdout.write(f"{job_id}|{job['name']}|{job['state']}|0|{job['reason']}\n")
    return 0


def scancel(state: dict[str, Any], arguments: list[str]) -> int:
    """End jobs; one that runs is completing until its processes are gone."""
    for job_id in arguments:
        job = state["jobs"][job_id]
        job["state"] = "CANCELLED" if job["state"] == "PENDING" else "COMPLETING"
    return 0


def scontrol(state: dict[str, Any], arguments: list[str]) -> int:
    """Requeue a job, or tell of it."""
    if arguments[0] == "requeue":
        if state["is_refusing"]:
            return 1
        job = state["jobs"][arguments[1]]
        job["state"], job["restarts"] = "PENDING", job["restarts"] + 1
    elif arguments[:2] == ["show", "hostnames"]:
        sys.stdout.write(f"{NODES}\n")
    elif "job" in arguments:
        job = state["jobs"][arguments[-1]]
        words = f"JobId={arguments[-1]} JobState={job['state']} Restarts={job['restarts']}"
        sys.stdout.write(f"{words}\n")
    return 0


def srun(state: dict[str, Any], arguments: list[str]) -> int:
    """Only has to be there."""
    del state, arguments
    return 0


PROGRAMS: dict[str, Callable[[dict[str, Any], list[str]], int]] = {
    "sbatch": sbatch,
    "squeue": squeue,
    "scancel": scancel,
    "scontrol": scontrol,
    "srun": srun,
}


@contextmanager
def opened(path: Path) -> Iterator[dict[str, Any]]:
    """The state, for one process or thread at a time; what is changed in it is kept."""
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        state = json.loads(before)
        yield state
        after = json.dumps(state)
        if after != before:  # a program that only asks may be killed by who lost patience
            file.seek(0)
            file.truncate()
            file.write(after)


def install(folder: Path) -> Path:
    """Put the programs into a folder of PATH; where they keep their state."""
    path = folder / "slurm.json"
    switches = {"is_refusing": False, "is_deaf": False, "end_time": None}
    path.write_text(json.dumps({"jobs": {}, "next": 6} | switches))
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {path} {name} "$@"\n')
        program.chmod(0o755)
    return path


if __name__ == "__main__":
    with opened(Path(sys.argv[1])) as known:
        code = PROGRAMS[sys.argv[2]](known, sys.argv[3:])
    sys.exit(code)
