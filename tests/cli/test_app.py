"""What all commands have in common: imports, errors, pipes, terminals."""

import signal
import subprocess
import sys

import pytest

from tests.cli.shell import COMMAND, TIMEOUT_S, Shell, busy_slot, finish
from tests.runs import make_run
from vmcjob.rundir import Outcome, OutcomeRecord

HEAVY = {"jax", "jaxlib", "flax", "numpy", "scipy", "zarr", "rich", "submitit"}


def heavy_imports(shell: Shell, *arguments: str) -> set[str]:
    """What a command imports of the packages that it should do without."""
    program = (
        "import sys\n"
        "from vmcjob.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = shell.run(*arguments, python=(sys.executable, "-c", program))
    assert done.returncode == 0, done.stderr
    modules = done.stderr.splitlines()[-1].split()
    assert "vmcjob.cli" in modules
    return HEAVY & set(modules)


@pytest.mark.parametrize(
    "command",
    [
        *("--help", "--version", "submit --help", "status", "validate h.toml", "submit -n h.toml"),
        "estimate --no-calibration h.toml",
        *("show h2-0000000000", "show --json h2-0000000000"),
    ],
)
def test_the_login_node_imports_nothing_heavy(shell, command):
    """JAX takes seconds, NumPy and Rich a tenth of one each, and status is typed all day."""
    for number in range(3):
        finish(make_run(shell.runs, f"h2-{number:010}"))
    assert heavy_imports(shell, *command.split()) == set()


@pytest.mark.parametrize("line", ["vmcjob s", "vmcjob status h", "vmcjob submit --set sampler."])
def test_completion_imports_nothing_heavy(shell, line):
    """A key that answers after a second is not pressed twice; help texts would import Rich."""
    make_run(shell.runs, "h2-0000000000")
    number = str(len(line.split()) - 1)
    words = {"_VMCJOB_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": number}
    assert heavy_imports(Shell(shell.cwd, words)) == set()


def test_submitting_imports_nothing_heavy(shell):
    with busy_slot(shell.runs):
        assert heavy_imports(shell, "submit", "h.toml") == set()


def test_help_names_every_command_and_hides_the_machinery(shell):
    done = shell.run("--help")
    commands = ("validate", "submit", "status", "resume", "logs", "cancel", "aggregate", "run")
    commands += ("show", "rerun", "image", "plot")
    assert all(f"\n  {command} " in done.stdout for command in commands)
    assert "local-queue" not in done.stdout
    assert "..." not in done.stdout.partition("Start and stop runs:")[2]  # no sentence is cut
    assert shell.run("-h").stdout == done.stdout


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("validate absent.toml", 4, "absent.toml"),
        ("validate bad.toml", 2, "bad.toml:2:1: "),
        ("submit bad.toml", 2, "bad.toml:2:1: "),
        ("status nothing", 4, "no run matches 'nothing' in runs"),
        ("cancel nothing", 4, "no run matches 'nothing' in runs"),
        ("show nothing", 4, "no run matches 'nothing' in runs"),
        ("logs nothing", 4, "no run matches 'nothing' in runs"),
        ("aggregate nothing", 4, "no run matches 'nothing' in runs"),
        ("run nothing", 4, "nothing: there is no such run"),
        ("status --site absent.toml", 4, "absent.toml"),
        ("status --runs rnus", 4, "rnus: there is no such directory; --runs names it"),
        ("aggregate --runs h.toml", 4, "h.toml: there is no such directory"),
        ("submit h.toml --max-parallel 0", 2, "max-parallel"),
        ("cancel", 2, "Usage: vmcjob cancel [OPTIONS] RUN...\n"),
        ("validate", 2, "Usage: vmcjob validate [OPTIONS] SPEC...\n"),
        ("frobnicate", 2, "frobnicate"),
    ],
)
def test_a_users_mistake_ends_in_a_sentence_and_an_exit_code(shell, command, code, message):
    (shell.cwd / "bad.toml").write_text('name = "h"\nsystm = 1\n')
    done = shell.run(*command.split())
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not shell.runs.exists()


def test_a_reader_that_goes_away_is_no_error_worth_a_word(shell):
    """`vmcjob status | head -1`: as other tools, we end as if by SIGPIPE, without a traceback."""
    for number in range(3):
        finish(make_run(shell.runs, f"h2-{number:010}"))
    with shell.start("status") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 128 + signal.SIGPIPE


@pytest.mark.parametrize("command", ["status", "status --json", "logs h2", "--help", "--version"])
def test_output_that_cannot_be_written_is_an_error_of_one_line(shell, command):
    """`vmcjob status > full-disk/table`: neither a traceback nor silence."""
    finish(make_run(shell.runs, "h2-0000000000")).log_path.write_text("hello\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *command.split()],
            cwd=shell.cwd,
            env=shell.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.stderr == "standard output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["status", "status --json", "logs h2", "--help", "--version"])
def test_a_closed_standard_output_is_an_error_of_one_line(shell, command):
    """`vmcjob status >&-`: what nobody can read has not been told."""
    finish(make_run(shell.runs, "h2-0000000000")).log_path.write_text("hello\n")
    closed = f'exec "$0" -m vmcjob {command} >&-'
    done = shell.run(closed, sys.executable, python=("/bin/sh", "-c"))
    assert done.stderr == "standard output cannot be written: Bad file descriptor\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("site", "variable", "named_by"),
    [
        (("--site", "site.toml"), {}, "the site profile site.toml"),
        ((), {"VMCJOB_SITE": "site.toml"}, "the site profile"),
        ((), {"VMCJOB_RUNS": "scratch"}, "$VMCJOB_RUNS"),
    ],
)
@pytest.mark.parametrize("command", ["status", "aggregate", "resume nothing"])
def test_a_runs_root_that_is_named_and_absent_is_not_found(
    shell, command, site, variable, named_by
):
    """Else a job that lost its scratch disk would report no runs, and all is well."""
    (shell.cwd / "site.toml").write_text('runs = "scratch"\n')
    done = Shell(shell.cwd, variable).run(*command.split(), *site)
    assert done.returncode == 4
    assert done.stderr == f"scratch: there is no such directory; {named_by} names it\n"


def test_memory_that_runs_out_is_a_sentence(shell):
    """Under `ulimit -v`, Python, the system and its linker say so each in its own way."""
    sentence = "out of memory: the machine has none left, or this process may not have more"
    for kibibytes in (20_000, 30_000, 50_000):
        limited = f'ulimit -v {kibibytes}; exec "$0" -m vmcjob aggregate'
        done = shell.run(limited, sys.executable, python=("/bin/sh", "-c"))
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, sentence + " (ulimit -v)")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "word"),
    [("vmcjob.cli", "interrupted\n"), ("typer", "interrupted\n"), ("vmcjob.spec", "")],
)
def test_an_interrupt_while_modules_are_imported_is_no_traceback(shell, module, word):
    """Ctrl-C in the first moments, wherever it strikes."""
    program = (
        "import sys, importlib.abc\n"
        "class Strike(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == '{module}': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Strike())\n"
        "from vmcjob.__main__ import main\n"
        "main()\n"
    )
    done = shell.run("validate", "h.toml", python=(sys.executable, "-c", program))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", word)


def test_a_terminal_that_cannot_show_a_letter_shows_a_question_mark(shell):
    finish(make_run(shell.runs, "h2-0000000000", point={"Δ": 1.4}))
    done = Shell(shell.cwd, {"PYTHONIOENCODING": "latin-1"}).run("status")
    assert done.returncode == 0
    assert "?=1.4" in done.stdout


def test_colours_are_for_terminals_that_want_them(shell):
    finish(make_run(shell.runs, "h2-0000000000"))
    assert "\x1b[32mfinished" in shell.run_on_terminal("status")[1]
    assert "\x1b" not in shell.run("status").stdout
    for setting in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in Shell(shell.cwd, setting).run_on_terminal("status")[1]
    assert "\x1b" not in shell.run_on_terminal("--color", "never", "status")[1]
    always = Shell(shell.cwd, {"NO_COLOR": "1"}).run("--color", "always", "status")
    assert "\x1b[32mfinished" in always.stdout  # an option wins over a variable


@pytest.mark.parametrize("n_columns", [40, 60, 80])
def test_a_narrow_terminal_gets_narrow_lines(shell, n_columns):
    finish(make_run(shell.runs, "h2-0000000000", point={"R": 1.4}), acceptance=0.5)
    failed = make_run(shell.runs, "h2-1111111111")
    failed.write_outcome(OutcomeRecord(outcome=Outcome.FAILED, message="word " * 30))
    plain = Shell(shell.cwd, {"NO_COLOR": "1"})
    _, shown = plain.run_on_terminal("status", n_columns=n_columns)
    assert max(map(len, shown.splitlines())) <= n_columns
    assert "h2-1111111111" in shown
    note = shown.partition("h2-1111111111: ")[2]  # in full, below the table
    assert note.count("word") == 30
    assert "h2-1111111111: " not in plain.run_on_terminal("status", n_columns=300)[1]
