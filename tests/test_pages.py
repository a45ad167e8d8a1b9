"""README and the pages of docs/ tell the truth about commands, specs, files and codes."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from tests.cli.shell import Shell
from tests.cli.test_plot import make_finished
from tests.pages import PAGES, ROOT, block, blocks, name_of
from tests.runs import end_everything
from tests.test_curve import DISTANCE, ENERGY
from vmcjob import __version__, errors
from vmcjob.cli.app import app
from vmcjob.plan import make_plan
from vmcjob.protocol import STOPPED
from vmcjob.runs.state import State
from vmcjob.site import load_site
from vmcjob.spec import parse_spec
from vmcjob.verdict.judgement import VERDICTS

MAX_LINES = 150  # of README
BY_CI = {"set-up: tests", "set-up: cluster", "lint", "docs"}  # README's, by .ci/run
FIRST = "set-up: run"  # minutes of computing; tests/test_energies.py runs the job
BY_OTHERS = {"library": "tests/vmc/test_library.py", "run": "tests/analysis/test_notebook.py"}
TROUBLE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
COMMANDS = {
    line: name_of(one.page)
    for one in blocks("sh")
    if not one.comment
    for line in one.code.splitlines()
}
"""Each once, with a page that prints it."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A checkout's jobs and profiles, with finished runs of the jobs that the pages name."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("jobs", "slurm"):
        os.symlink(ROOT / name, folder / name)
    shell = Shell(folder)
    h2 = '[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]'
    make_finished(shell.runs, "h2-1a2b3c4d5e", -1.174476, h2, point={})
    make_finished(shell.runs, "h-0000000000", -0.5, '[["H", 0.0, 0.0, 0.0]]', point={})
    for seed, (distance, energy) in enumerate(zip(DISTANCE[:11], ENERGY[:11], strict=True)):
        atoms = f'[["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, {distance}]]'
        run_id = f"h2_curve-{seed:010x}"
        make_finished(shell.runs, run_id, float(energy), atoms, seed, point={"R": float(distance)})
    (shell.runs / "h2-1a2b3c4d5e" / "log.txt").write_text("training\n")
    yield shell
    end_everything(shell.runs)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_printed_command_runs(desk: Shell, line: str) -> None:
    """A command or option that was renamed stays behind in a page."""
    name, *arguments = shlex.split(line, comments=True)
    assert name == "vmcjob", COMMANDS[line]
    done = desk.run(*arguments)
    assert done.returncode == 0, f"{COMMANDS[line]}\n{done.stdout}{done.stderr}"


def test_every_other_block_says_who_runs_it_or_why_nobody_does() -> None:
    """A block without a test is a promise without a guard."""
    assert COMMANDS
    for one in (*blocks("sh"), *blocks("python")):
        kind = one.comment.partition(":")[0]
        is_run = (not one.comment and one.language == "sh") or one.comment in {FIRST, *BY_CI}
        has_reason = kind == "not run" and len(one.comment.split()) > 4
        assert is_run or has_reason or kind in BY_OTHERS, f"{name_of(one.page)}:\n{one.code}"


def test_readme_is_short_and_the_ci_runs_its_commands() -> None:
    """Everything that a new user need not know in two minutes has a page of its own."""
    assert len(PAGES[0].read_text("utf-8").splitlines()) <= MAX_LINES
    script = (ROOT / ".ci/run").read_text("utf-8")
    marked = {one.comment for one in blocks("sh") if one.page == PAGES[0] and one.comment}
    assert marked == BY_CI | {FIRST}
    for marker in BY_CI:
        assert f'"{marker}"' in script


def test_specs_and_profiles_in_pages_are_read(tmp_path: Path) -> None:
    """A key that was renamed stays behind in a page; the sweep is 3 × 2 runs."""
    smallest = block("toml", "the smallest spec").code
    table = block("toml", "a table that follows the smallest spec").code
    assert smallest in PAGES[0].read_text("utf-8")
    swept = smallest.replace("1.4]]", '"{R}"]]')
    assert len(make_plan(parse_spec(smallest, "page")).tasks) == 1
    assert len(make_plan(parse_spec(swept + table, "page")).tasks) == 6
    chain = block("toml", "a variable of a table [sweep]").code
    assert len(make_plan(parse_spec(f"{swept}[sweep]\n{chain}", "page")).tasks) == 5
    specs = [one.code for one in blocks("toml") if one.comment == "a spec"]
    assert [len(make_plan(parse_spec(code, "page")).tasks) for code in specs] == [1, 3, 10, 6]
    assert all(one.comment or one.page == PAGES[0] for one in blocks("toml"))
    profile = tmp_path / "site.toml"
    profile.write_text(block("toml", "a site profile").code)
    assert load_site(profile, {"HOME": "/home/me"}).slurm.partition == "gpu"


def test_commands_in_sentences_and_tables_have_the_options_they_name() -> None:
    """`vmcjob COMMAND --option` in a text; nothing is run, the arguments alone are parsed."""
    group = get_command(app)
    n_checked = 0
    for page in PAGES:
        for words in re.findall(
            r"`vmcjob ([a-z][^`]*)`", page.read_text("utf-8").replace("\n", " ")
        ):
            command, arguments = group, shlex.split(words)
            while arguments and arguments[0] in getattr(command, "commands", {}):
                command = command.commands[arguments.pop(0)]  # type: ignore[attr-defined]
            assert command is not group, f"{name_of(page)}: vmcjob {words}"
            known = {name for option in command.params for name in (*option.opts, "-h", "--help")}
            named = {word for word in arguments if re.fullmatch(r"--?[a-z][a-z-]*", word)}
            assert named <= known, f"{name_of(page)}: vmcjob {words}"
            n_checked += 1
    assert n_checked > 50


def test_links_to_files_lead_somewhere() -> None:
    """A page or picture that was moved or renamed leaves a dead link behind."""
    for page in PAGES:
        text = page.read_text("utf-8")
        links = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
        missing = [link for link in links if not (page.parent / link).exists()]
        named = re.findall(
            r"`((?:vmcjob|tests|jobs|slurm|docs)/[\w/.-]+)`", page.read_text("utf-8")
        )
        names = (name for name in named if not name.startswith("docs/_build"))  # made by a build
        missing += [name for name in names if not (ROOT / name).exists()]
        assert not missing, name_of(page)
    assert "docs/architecture.md" in PAGES[0].read_text("utf-8")


def test_the_page_for_trouble_knows_every_state_verdict_and_exit_code() -> None:
    """A state or code that is added to the program is looked up in vain."""
    first = set(re.findall(r"^\| ([\w ]+?) \|", TROUBLE, re.MULTILINE))
    assert {state.lower() for state in State} | set(VERDICTS) <= first
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.VmcJobError)}
    assert {str(code) for code in {0, STOPPED, 130} | codes} <= first


def test_the_citation_has_the_version_of_the_program() -> None:
    """A release that forgets it is cited as the one before."""
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_page_is_in_the_website() -> None:
    """A page in no table of contents is found by nobody."""
    listed = set()
    for page in PAGES:
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - listed == {ROOT / "docs/index.md"}
