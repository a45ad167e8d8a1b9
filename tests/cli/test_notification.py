"""A command that is to be told of ends, as who submits hears of it."""

import pytest

from tests.cli.shell import Shell


@pytest.mark.parametrize("is_here", [True, False])
def test_a_command_that_is_not_here_is_warned_of_and_submitted_all_the_same(
    shell: Shell, is_here: bool
) -> None:
    """The hosts of the runs may have it; and a run is worth more than what is said of it."""
    (shell.cwd / "site.toml").write_text('notify = "~/notify-me --all"\n')
    if is_here:
        (shell.cwd / "notify-me").write_text("#!/bin/sh\n")
        (shell.cwd / "notify-me").chmod(0o755)
    done = shell.run("submit", "-n", "h.toml", "--site", "site.toml")
    assert done.returncode == 0
    warning = f"warning: notify: no program {shell.cwd}/notify-me on this host; the runs go on"
    assert (warning in done.stderr) != is_here
