"""What keeping a run's results costs: the share of a training that goes into writing them.

    python -m tests.benchmarks.commits jobs/h2.toml --steps 2000

The job's own worker, in this process, with the job's own flush interval. Commits and heartbeats are
timed where they happen, between two blocks of steps, while the devices wait: without them the
training would be faster by just that.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.run.harness import make_run
from vmcjob.run import main as run_worker
from vmcjob.run.heartbeat import HeartbeatWriter
from vmcjob.spec import JobSpec, dump_spec, read_spec
from vmcjob.store import RunStore


def train_only(spec: JobSpec, n_steps: int) -> JobSpec:
    """The job without what comes before and after training."""
    return replace(
        spec,
        pretrain=replace(spec.pretrain, steps=0),
        train=replace(spec.train, steps=n_steps),
        evaluate=replace(spec.evaluate, steps=0),
    )


def timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The same function; how long each call took is noted."""

    @wraps(call)
    def timing(*arguments: Any) -> None:
        began = time.perf_counter()
        call(*arguments)
        seconds.append(time.perf_counter() - began)

    return timing


def main() -> None:
    """Print how much of a training's time its commits and heartbeats took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    spec = train_only(read_spec(options.job).points[0].spec, options.steps)
    commits: list[float] = []
    beats: list[float] = []
    with (
        TemporaryDirectory() as folder,
        patch.object(RunStore, "commit", timed(RunStore.commit, commits)),
        patch.object(HeartbeatWriter, "beat", timed(HeartbeatWriter.beat, beats)),
    ):
        run = make_run(Path(folder), dump_spec(spec))
        assert run_worker(run.path) == 0
        clock = RunStore.open(run.store_path).series("train")["wall_time"]
        n_files = sum(path.is_file() for path in run.path.rglob("*"))
    training = float(clock[-1] - clock[0])  # without the first step, which compiles
    print(f"{spec.name}: {options.steps} steps, a commit every {spec.output.flush_seconds:g} s")
    for name, seconds in (("commits", commits), ("heartbeats", beats)):
        print(f"{len(seconds):6} {name:10} {100 * sum(seconds) / training:6.2f} % of the training")
    print(f"{n_files:6} files")


if __name__ == "__main__":
    main()
