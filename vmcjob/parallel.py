"""A function of many things, in several processes, in order; whoever dies over one is told of.

A process is an interpreter of its own, that is given its share through a pipe and answers through
another. So nothing is forked beside threads of others, a script that imports us needs no guard
around its main program, and a process whose parent has gone ends at its next answer.
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
"""What takes less is done before other processes have imported anything."""
MAX_PROCESSES = 8
"""By default: a login node has many cores, and other users."""


class Killed(NamedTuple):
    """In place of a result: the process was ended from outside while it was at it."""

    signal: int


def default_processes() -> int:
    """Half as many as there are cores for this process, at least one, and not too many."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # of Linux alone
        cores = os.cpu_count() or 1
    return min(max(cores // 2, 1), MAX_PROCESSES)


def compute(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    n_processes: int = 1,
    alone_s: float = ALONE_S,
) -> Generator[Result | Killed, None, None]:
    """The function of every item, in their order.

    Args:
        function: of a module, by which the other processes find it.
        items: what can be pickled, as the results must be.
        n_processes: in all, this one among them.
        alone_s: for so long this process tries alone.

    Raises what the function raises. Whoever stops asking, by Ctrl-C too, ends the other processes
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
    """Every n-th item is for the same process: results come in order, and nobody has to plan."""
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
    """Another process with its share of the items, in its order."""

    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._function, self._items = function, items
        self._n_done = 0
        self._process = self._start()

    def next_result(self) -> Result | Killed:
        """Of the next item; a new process goes on behind one that was deadly."""
        answers = cast(IO[bytes], self._process.stdout)
        self._n_done += 1
        try:
            is_result, found = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):  # at its end, or in the midst of an answer
            code = self._process.wait()
            if code >= 0:
                raise RuntimeError(f"a process that was to help ended with code {code}") from None
            self.end()
            self._process = self._start()
            return Killed(-code)
        if is_result:
            return found
        raise found

    def end(self) -> None:
        """Now, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        cast(IO[bytes], self._process.stdout).close()

    def _start(self) -> "subprocess.Popen[bytes]":
        """In a session of its own: Ctrl-C is for us, and we end it."""
        places = os.pathsep.join(path or os.getcwd() for path in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": places},
            start_new_session=True,
        )
        request = (self._function, list(self._items[self._n_done :]))
        # One that has ended by now tells so when it is asked for a result.
        with suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as requests:
            pickle.dump(request, requests)
        return process


def serve() -> None:
    """Answer a request on standard input; what the function prints does not get among answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    function, items = pickle.load(sys.stdin.buffer)
    with suppress(BrokenPipeError):  # nobody asks any more
        for item in items:
            pickle.dump(_answer(function, item), answers)
            answers.flush()


def _answer(function: Callable[[Item], Result], item: Item) -> tuple[bool, Result | Exception]:
    """Whether there is a result, and that, or what was raised, with its place here."""
    try:
        return True, function(item)
    except Exception as error:
        error.add_note(traceback.format_exc())
        return False, error


if __name__ == "__main__":
    serve()
