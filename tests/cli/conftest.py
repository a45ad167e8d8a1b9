"""A shell with a small spec to type commands at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.runs import end_everything

SPEC = """
name = "h"
seeds = [0, 1]
[system]
atoms = [["H", 0.0, 0.0, 0.0]]
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """An empty directory but for the spec h.toml, which asks for two runs."""
    (tmp_path / "h.toml").write_text(SPEC)
    shell = Shell(tmp_path)
    yield shell
    end_everything(shell.runs)
