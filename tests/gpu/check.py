"""Check this machine's GPU in some minutes: energies, training steps, memory, resuming, sharing.

    python -m tests.gpu.check --minutes 8 --out gpu-check
    python -m tests.gpu.tables gpu-check

Parts come in the order of their worth, each in a process of its own, which writes a JSON file when
it is done. When the minutes are over, the parts that are left are named in `left.json`, with the
reason; so is a part that failed. Without a GPU, all systems, networks and runs are tiny: numbers of
a CPU say only that the check itself works.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
LEFT = "left.json"
REASON_LENGTH = 500  # characters of what a failed part has said last


class Part(NamedTuple):
    """One measurement: its file's name, a function of `measure` or `jobs`, and its arguments."""

    name: str
    function: str
    arguments: Sequence[str] = ()
    seconds: float = 30.0  # that it needs at least; with less left, it is not begun


PARTS = (
    Part("h2", "jobs.energy", ["h2"]),
    Part("n2-spring", "measure.step", ["n2", "spring"]),
    Part("n2-kfac", "measure.step", ["n2", "kfac"]),
    Part("resume", "jobs.resume"),
    Part("shared", "jobs.shared"),
    Part("lih", "jobs.energy", ["lih"]),
    Part("laplacian-ferminet", "measure.laplacian", ["ferminet"]),
    Part("laplacian-psiformer", "measure.laplacian", ["psiformer"]),
    Part("n2-spring-account", "measure.account", ["n2", "spring"]),
    Part("n2-kfac-account", "measure.account", ["n2", "kfac"]),
    Part("n2-minsr", "measure.step", ["n2", "minsr"]),
    Part("n2-sr", "measure.step", ["n2", "sr"]),
    Part("n2-adam", "measure.step", ["n2", "adam"]),
    Part("n2-lamb", "measure.step", ["n2", "lamb"]),
    Part("benzene-spring", "measure.step", ["benzene", "spring"]),
    Part("benzene-kfac", "measure.step", ["benzene", "kfac"]),
    Part("benzene-adam", "measure.step", ["benzene", "adam"]),
    Part("benzene-spring-account", "measure.account", ["benzene", "spring"]),
    Part("benzene-kfac-account", "measure.account", ["benzene", "kfac"]),
)

Start = Callable[[Part, Path, float], str]
"""Does a part within so many seconds, and writes its file; answers with why it did not, or ""."""


def has_gpu() -> bool:
    """Whether NVIDIA's driver lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and "GPU" in done.stdout


def start_process(part: Part, out: Path, limit_s: float, *, is_tiny: bool) -> str:
    """Do a part in a process of its own; with it, whatever it has started ends."""
    command = [sys.executable, "-m", "tests.gpu.part", part.function, *part.arguments]
    path = (out / f"{part.name}.json").absolute()
    path.unlink(missing_ok=True)  # of an earlier check
    command += ["--out", str(path), *(["--tiny"] if is_tiny else [])]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said = process.communicate(timeout=limit_s)[1].strip()
        except subprocess.TimeoutExpired:
            if not path.exists():
                return f"not done within the {limit_s:.0f} s that were left"
            return ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return ""
    return f"failed: {said[-REASON_LENGTH:] or f'exit code {process.returncode}'}"


def check(parts: Sequence[Part], out: Path, limit_s: float, start: Start) -> dict[str, str]:
    """Do parts in their order until time is up; why each of the others is left, by its name."""
    out.mkdir(parents=True, exist_ok=True)
    left: dict[str, str] = {}
    deadline = time.monotonic() + limit_s
    for part in parts:
        rest = deadline - time.monotonic()
        if rest < part.seconds:
            left[part.name] = f"not begun: {max(rest, 0):.0f} s were left"
        else:
            began = time.monotonic()
            reason = start(part, out, rest)
            if reason:
                left[part.name] = reason
            print(f"{part.name}: {reason or 'done'}, {time.monotonic() - began:.0f} s", flush=True)
        (out / LEFT).write_text(json.dumps(left, indent=2) + "\n")
    return left


def main(arguments: Sequence[str] | None = None) -> int:
    """Check; exit code 1 where a part has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS])
    parser.add_argument("--tiny", action="store_true", help="as without a GPU")
    options = parser.parse_args(arguments)
    is_tiny = options.tiny or not has_gpu()
    if is_tiny and not options.tiny:
        print("no GPU here: everything is tiny, and its numbers mean nothing", flush=True)
    chosen = [part for part in PARTS if options.only is None or part.name in options.only]
    left = check(
        chosen,
        options.out,
        60.0 * options.minutes,
        lambda part, out, rest: start_process(part, out, rest, is_tiny=is_tiny),
    )
    return int(any(reason.startswith("failed") for reason in left.values()))


if __name__ == "__main__":
    sys.exit(main())
