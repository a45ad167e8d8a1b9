"""README tells the truth about commands and specs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from vmcjob.plan import make_plan
from vmcjob.spec import parse_spec

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = sorted(set(re.findall(r"(?<!from )vmcjob ([a-z]+)\b", README)))


def test_the_smallest_spec_is_a_spec_and_the_sweep_fits_it() -> None:
    """Both TOML blocks together are 3 × 2 runs, once the geometry uses R."""
    smallest, sweep = BLOCKS
    assert len(make_plan(parse_spec(smallest, "README.md")).tasks) == 1
    swept = smallest.replace("1.4]]", '"{R}"]]') + sweep
    assert len(make_plan(parse_spec(swept, "README.md")).tasks) == 6


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_named_exists(command: str) -> None:
    """A command that README names answers --help."""
    shown = subprocess.run(
        [sys.executable, "-m", "vmcjob", command, "--help"], capture_output=True, timeout=60
    )
    assert shown.returncode == 0


def test_links_to_files_of_the_checkout_lead_somewhere() -> None:
    """A page or picture that was moved or renamed leaves a dead link behind."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", README)
    assert "docs/architecture.md" in links
    missing = [link for link in links if not (Path(__file__).parents[1] / link).exists()]
    assert not missing
