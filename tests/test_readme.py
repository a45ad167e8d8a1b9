"""tests/README.md names every test file."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_file_is_in_the_list() -> None:
    """A new file says which mistake it catches; a file that is gone leaves the list."""
    listed = re.findall(r"^\| `(\S+\.py)` \|", (TESTS / "README.md").read_text("utf-8"), re.M)
    files = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py"))
    assert sorted(listed) == files
