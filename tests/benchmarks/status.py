"""What `vmcjob status` costs on 100 finished runs, in Python start-ups.

Run it with `python -m tests.benchmarks.status`.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cli.shell import COMMAND, Shell, finish
from tests.runs import make_run

REPEATS = 15
N_RUNS = 100


def measure_ms(command: list[str], shell: Shell) -> float:
    """The shortest of several times from start to end, which other work disturbs least."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run(
            command, cwd=shell.cwd, env=shell.environment, capture_output=True, check=True
        )
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    """Print a table of times and their ratio to the start of Python."""
    with tempfile.TemporaryDirectory() as directory:
        shell = Shell(Path(directory))
        for number in range(N_RUNS):
            finish(make_run(shell.runs, f"h2-{number:010}"))
        (shell.cwd / "none").mkdir()
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import typer'": [sys.executable, "-c", "import typer"],
            "vmcjob --help": [*COMMAND, "--help"],
            "vmcjob status, no runs": [*COMMAND, "status", "--runs", "none"],
            f"vmcjob status, {N_RUNS} runs": [*COMMAND, "status"],
        }
        times = {name: measure_ms(command, shell) for name, command in commands.items()}
    start = times["python -c pass"]
    for name, time_ms in times.items():
        print(f"{name:26} {time_ms:6.0f} ms {time_ms / start:6.1f}")


if __name__ == "__main__":
    main()
