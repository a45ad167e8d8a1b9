"""Compute a function of many items in several processes, in order; a killed process is reported.

Each helper process is a new interpreter that gets its items through a pipe and answers through
another. So nothing is forked beside other threads, and a script that imports this module needs no
guard around its main program. A helper whose parent has ended ends at its next answer.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import IO, Generic, NamedTuple, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")

ALONE_S = 2.0
"""Seconds of work without helpers: shorter work ends before helpers have imported anything."""
MAX_PROCESSES = 8
"""Default limit, because a login node has many cores, and other users."""


class Killed(NamedTuple):
    """Result of an item over which the process was killed from outside."""

    signal: int


def default_processes() -> int:
    """Half the number of this process's cores, at least one and at most MAX_PROCESSES."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # exists only on Linux
        cores = os.cpu_count() or 1
    return min(max(cores // 2, 1), MAX_PROCESSES)


def compute(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_processes: int = 1,
    alone_s: float = ALONE_S,
) -> Generator[Result | Killed, None, None]:
    """The function of each item, in order.

    Args:
        function: a module-level function, so that other processes can import it.
        items: picklable, like the results.
        n_processes: number of processes, this one included.
        alone_s: seconds that this process works before it starts helpers.

    Raises the function's exceptions. If the caller stops early, also by Ctrl-C, helpers are killed
    at once.
    """
    until = time.monotonic() + alone_s
    n_alone = 0
    for item in items:
        if n_processes > 1 and time.monotonic() >= until:
            break
        n_alone += 1
        yield function(item)
    yield from _take_turns(function, items[n_alone:], n_processes)


def _take_turns(
    function: Callable[[Item], Result], items: Sequence[Item], n_processes: int
) -> Generator[Result | Killed, None, None]:
    """Each process gets every n-th item, so that results come in order without planning."""
    n = min(n_processes, len(items))
    helpers = [_Helper(function, items[turn::n]) for turn in range(1, n)]
    try:
        for index, item in enumerate(items):
            turn = index % n
            yield helpers[turn - 1].next_result() if turn else function(item)
    finally:
        for helper in helpers:
            helper.end()


class _Helper(Generic[Item, Result]):
    """A helper process with its items, in order."""

    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._function, self._items = function, items
        self._n_done = 0
        self._process = self._start()

    def next_result(self) -> Result | Killed:
        """The result of the next item; if the process was killed, a new one takes the rest."""
        answers = cast(IO[bytes], self._process.stdout)
        self._n_done += 1
        try:
            is_result, found = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):  # ended before or during an answer
            code = self._process.wait()
            if code >= 0:
                raise RuntimeError(f"a helper process ended with code {code}") from None
            self.end()
            self._process = self._start()
            return Killed(-code)
        if is_result:
            return found
        raise found

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        cast(IO[bytes], self._process.stdout).close()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process in a session of its own, so that Ctrl-C reaches only the parent."""
        places = os.pathsep.join(path or os.getcwd() for path in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": places},
            start_new_session=True,
        )
        request = (self._function, list(self._items[self._n_done :]))
        # If the process has already ended, `next_result` reports it.
        with suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as requests:
            pickle.dump(request, requests)
        return process


def serve() -> None:
    """Answer a request on standard input; the function's own output goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, items = pickle.load(sys.stdin.buffer)
    with suppress(BrokenPipeError):  # the parent has ended
        for item in items:
            pickle.dump(_answer(function, item), answers)
            answers.flush()


def _answer(function: Callable[[Item], Result], item: Item) -> tuple[bool, Result | Exception]:
    """(True, result), or (False, exception) with its traceback as a note."""
    try:
        return True, function(item)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return False, error


if __name__ == "__main__":
    serve()
