"""Progress of long work: a line on the terminal that is redrawn, and removed at the end."""

import shutil
import sys
import time
from collections.abc import Generator, Iterable
from typing import TypeVar

from vmcjob.cli.screen import can_redraw, put_drawn
from vmcjob.cli.text import format_duration

Item = TypeVar("Item")
PATIENCE_S = 1.0  # shorter work shows no progress
INTERVAL_S = 0.2
ERASE = "\r\x1b[K"


class Progress:
    """Progress over a number of items; nothing is shown if standard error is a file or a pipe."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._is_seen = can_redraw(sys.stderr)

    def over(self, items: Iterable[Item]) -> Generator[Item, None, None]:
        """Yield the items, while the line counts them."""
        start = time.monotonic()
        due = start + PATIENCE_S
        try:
            for done, item in enumerate(items, 1):
                now = time.monotonic()
                if self._is_seen and now >= due:
                    due = now + INTERVAL_S
                    self._draw(done, now - start)
                yield item
        finally:
            if due > start + PATIENCE_S:
                put_drawn(ERASE, is_talk=True, is_line=False)

    def _draw(self, done: int, taken_s: float) -> None:
        """Draw the line; the cursor returns to its beginning, so that other text overwrites it."""
        left_s = taken_s * (self._total - done) / done
        text = f"{self._what}: {done} of {self._total}, {format_duration(left_s)} left"
        width = shutil.get_terminal_size().columns - 1
        put_drawn(f"{ERASE}{text[:width]}\r", is_talk=True, is_line=False)
