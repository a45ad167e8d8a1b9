"""Start Python programs by forks of a process that has imported what they need.

Importing takes 0.3 s for a command and 3 s for a worker. A fork is a process like any other: it has
its own arguments, directory, environment, files, signals and exit code.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

from vmcjob.cli.catalogue import ENTRIES

EACH = sorted({f"vmcjob.cli.{entry.module}" for entry in ENTRIES.values()})
COMMANDS = (*EACH, "vmcjob.analysis", "vmcjob.results.report", "vmcjob.scheduler.slurm")
DRAWING = (*COMMANDS, "vmcjob.plot")
RELAXING = (*DRAWING, "pyscf.scf", "pyscf.grad")
WORKERS = ("vmcjob.cli", "vmcjob.run.main", "vmcjob.run.attempt")
AT_START = ("JAX_", "PYTHON", "OMP_", "OPENBLAS_", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
"""Variables that an interpreter or a library reads when it starts: beginnings of their names."""
N_BYTES = 4  # of a process id or a status


class Fork(subprocess.Popen[str]):
    """A process as of `Popen`, but forked by a server that has imported some modules.

    Of what is private to `Popen`, only the method that starts a process is replaced.
    """

    def __init__(self, modules: tuple[str, ...], command: list[str], **options: Any) -> None:
        self._modules = modules
        self._end, self._theirs = socket.socketpair()  # tells the process id, then the status
        super().__init__(command, **options)

    def _execute_child(self, command: list[str], *others: Any) -> None:
        cwd, environment, pipes = others[4], dict(others[5] or os.environ), others[9:15]
        os.umask(umask := os.umask(0o077))
        request = command[1:], str(cwd or os.getcwd()), environment, umask
        child_ends = pipes[0], pipes[3], pipes[5]
        standard = [end if end != -1 else number for number, end in enumerate(child_ends)]
        settings = {name: text for name, text in environment.items() if name.startswith(AT_START)}
        server = _server(self._modules, frozenset(settings.items()))
        with self._theirs, tempfile.TemporaryFile("w") as file:
            json.dump(request, file)
            file.flush()
            socket.send_fds(server, [b"!"], [file.fileno(), self._theirs.fileno(), *standard])
        self.pid = int.from_bytes(self._end.recv(N_BYTES), "big")
        vars(self)["_child_created"] = True
        getattr(self, "_close_pipe_fds")(*pipes)  # noqa: B009 -- type checkers do not know it

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, as soon as the process has ended."""
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                status = self._end.recv(N_BYTES)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
            self._end.close()
        return self.returncode


def on_devices(n_devices: int, function: Callable[[str], None], path: str) -> None:
    """Call a function of a module with a path, in a process with so many devices and float64."""
    lines = (
        "import jax",
        'jax.config.update("jax_enable_x64", True)',
        f"from {function.__module__} import {function.__name__} as function",
        f"assert jax.local_device_count() == {n_devices}",
        f"function({path!r})",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    flags = f"--xla_force_host_platform_device_count={n_devices}"
    environment = os.environ | {"XLA_FLAGS": flags}
    with Fork(WORKERS, command, cwd=Path(__file__).parents[1], env=environment) as process:
        assert process.wait(400) == 0


@functools.cache
def _server(modules: tuple[str, ...], settings: frozenset[tuple[str, str]]) -> socket.socket:
    """The socket of a process with these modules, which forks on request and ends with this one."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(AT_START)}
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", *modules],
            cwd=Path(__file__).parents[1],
            env=kept | dict(settings),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def _serve(modules: list[str]) -> None:
    """Fork whenever standard input, a socket, asks for it, until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nurses leave no zombies
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as requests:
        while files := socket.recv_fds(requests, 1, 5)[1]:
            if _fork() == 0:
                requests.close()
                _nurse(*files)
            for file in files:
                os.close(file)


def _nurse(text: int, told: int, *standard: int) -> None:
    """Fork the process itself, tell its id, wait for its end, and tell its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if (pid := _fork()) == 0:
        _become(text, *standard)
    os.write(told, pid.to_bytes(N_BYTES, "big"))
    for file in standard:
        os.close(file)
    os.closerange(0, 3)
    os.write(told, os.waitpid(pid, 0)[1].to_bytes(N_BYTES, "big"))
    os._exit(0)


def _become(text: int, *standard: int) -> NoReturn:
    """Go on as the program that was asked for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(text) as file:
        file.seek(0)
        (option, program, *arguments), cwd, environment, umask = json.load(file)
    for number, file in enumerate(standard):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.umask(umask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = (
        _opened(0, sys.stdin),
        _opened(1, sys.stdout),
        _opened(2, sys.stderr),
    )
    sys.argv, sys.path[0] = [option, *arguments], cwd if option == "-m" else ""
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    sys.exit()


def _opened(number: int, before: Any) -> TextIO:  # Any: typeshed does not say what streams are
    """A standard stream anew: on a terminal it writes line by line."""
    return open(
        number,
        "w" if number else "r",
        buffering=1 if number == 2 or os.isatty(number) else -1,
        encoding=before.encoding,
        errors=before.errors,
        closefd=False,
    )


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # JAX warns of threads, but starts none before its first use
        return os.fork()


if __name__ == "__main__":
    _serve(sys.argv[1:])
