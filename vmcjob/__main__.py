"""`vmcjob`, also as `python -m vmcjob`; an interrupted start ends with a sentence, too.

Only modules that the interpreter has already loaded are imported before `main`: earlier, Ctrl-C
could not be caught.
"""

import errno
import sys

INTERRUPTED = 130  # as shells report a process that SIGINT ended
OUT_OF_MEMORY = (
    "out of memory: the machine has none left, or this process may not have more (ulimit -v)"
)


def main() -> None:
    """The `vmcjob` command."""
    try:
        from vmcjob.cli import main as run

        run()
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        _end(OUT_OF_MEMORY, 1)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error reports lack of memory: from Python, the system or the linker."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(error, ImportError) and "failed to map segment" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _end(sentence: str, code: int) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{sentence}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
