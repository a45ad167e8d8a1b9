"""The help pages, and shell completion."""

import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from tests.cli.shell import Shell
from tests.runs import make_run
from vmcjob.cli.app import app
from vmcjob.cli.catalogue import ENTRIES, EXAMPLES, PANELS

PROGRAM = get_command(app)
COMMANDS = getattr(PROGRAM, "commands")  # noqa: B009 -- of a group, which Typer types as a command


@pytest.mark.parametrize("name", ENTRIES)
def test_the_help_page_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    """The sentences stand in a table, so that the help page imports no command."""
    command = COMMANDS[name]
    first = command.get_short_help_str(limit=200)
    assert first.startswith(ENTRIES[name].sentence.removesuffix("."))
    assert command.name == name
    assert command.hidden == (name == "local-queue")


def test_every_command_has_examples_that_it_accepts() -> None:
    """An option that was renamed stays behind in an example."""
    shown = {line for lines in EXAMPLES.values() for line in lines}
    visible = {name for panel in PANELS.values() for name in panel} - {"image"}
    assert {name for name, lines in EXAMPLES.items() if lines} >= visible
    for line in shown:
        program, name, *words = shlex.split(line.partition(" > ")[0])
        command = COMMANDS[name]
        if inner := getattr(command, "commands", None):
            name, *words = words
            command = inner[name]
        assert program == "vmcjob"
        command.make_context(name, words)  # parses, and runs nothing


def test_examples_stand_below_the_options(shell: Shell) -> None:
    """The catalogue finds a command of a group by both of its words."""
    for words in (("status",), ("image", "build")):
        page = shell.run(*words, "--help").stdout
        *_, example = EXAMPLES[" ".join(words)]
        assert page.endswith(f"\n  {example}\n")
        assert "\nExamples:\n" in page


def complete(shell: Shell, line: str, kind: str = "bash") -> list[str]:
    """The words that a shell offers at the end of a line."""
    about = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    about |= {"_TYPER_COMPLETE_ARGS": line, "_VMCJOB_COMPLETE": f"complete_{kind}"}
    about |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = Shell(shell.cwd, about).run()
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vmcjob sub", ["submit"]),
        ("vmcjob --col", ["--color"]),
        ("vmcjob image ", ["build", "inspect", "verify"]),
        ("vmcjob status h", ["h", "h2", "h-0000000000", "h2-1111111111"]),
        ("vmcjob show --runs elsewhere ", ["@last", "he", "he-2222222222"]),
        ("vmcjob show --runs nowhere h", []),
        ("vmcjob submit ", ["h.toml", "jobs/h2.toml"]),
        ("vmcjob submit jobs/", ["jobs/h2.toml"]),
        ("vmcjob keys sampler.wa", ["sampler.walkers", "sampler.warmup"]),
        ("vmcjob submit h.toml --set sampler.walk", ["sampler.walkers="]),
        ("vmcjob show h2 --against h2-", ["h2-1111111111"]),
    ],
)
def test_a_shell_completes_commands_runs_specs_and_keys(shell, line, words) -> None:
    for root, name in (("runs", "h"), ("runs", "h2"), ("elsewhere", "he")):
        digit = str(("h", "h2", "he").index(name))
        make_run(shell.cwd / root, f"{name}-{digit * 10}")
    (shell.cwd / "jobs").mkdir()
    (shell.cwd / "jobs/h2.toml").write_text("")
    assert complete(shell, line) == words


def test_zsh_and_fish_complete_too(shell: Shell) -> None:
    """Each shell has its own form of the answer."""
    assert complete(shell, "vmcjob sub", "fish") == ["submit"]
    assert '"submit"' in " ".join(complete(shell, "vmcjob sub", "zsh"))


def test_a_profile_with_mistakes_completes_nothing(shell: Shell) -> None:
    """A message would end up on the line that is being typed."""
    Path(shell.cwd / "site.toml").write_text("runs = 3")
    assert complete(shell, "vmcjob status --site site.toml h") == []
