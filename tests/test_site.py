"""Site profiles: which one is taken, and what it says."""

import shlex
from pathlib import Path

import pytest

from vmcjob.document import keys_of
from vmcjob.errors import NotFoundError, SpecError
from vmcjob.resources import WALL_TIME
from vmcjob.site import SPEC_KEYS, Site, load_site
from vmcjob.spec.model import PROFILE_KEYS, JobSpec
from vmcjob.spec.sweep import Variations

ROOT = Path(__file__).parents[1]


def profile(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_profile_runs_live_below_the_current_directory() -> None:
    assert load_site(None, {}) == Site()
    assert Site().runs == Path("runs")


def test_the_local_profile_says_what_is_assumed_without_one() -> None:
    """It is shipped as the example to copy, so it must not drift from the embedded default."""
    assert load_site(ROOT / "slurm" / "local.toml", {}) == Site()


def test_the_example_of_a_cluster_is_a_profile_for_slurm() -> None:
    site = load_site(ROOT / "slurm" / "example.toml", {"HOME": "/home/ada"})
    assert (site.scheduler, site.slurm.time) == ("slurm", "01:00:00")
    assert site.runs == Path("/home/ada/vmcjob-runs")


def test_the_nearest_profile_wins(tmp_path: Path) -> None:
    """The command line before the environment, before the user's own, before the default."""
    own = profile(tmp_path, 'name = "own"', ".config/vmcjob/site.toml")
    named = profile(tmp_path, 'name = "named"', "named.toml")
    asked = profile(tmp_path, 'name = "asked"', "asked.toml")
    home = {"HOME": str(tmp_path)}
    both = {**home, "VMCJOB_SITE": str(named)}
    assert load_site(asked, both).name == "asked"
    assert load_site(None, both).name == "named"
    assert load_site(None, home).name == "own"
    own.unlink()
    assert load_site(None, home).name == "local"


def test_the_environment_moves_the_runs_of_any_profile(tmp_path: Path) -> None:
    path = profile(tmp_path, 'runs = "/elsewhere"')
    assert load_site(path, {"VMCJOB_RUNS": "/scratch/runs"}).runs == Path("/scratch/runs")
    assert load_site(path, {"VMCJOB_RUNS": ""}).runs == Path("/elsewhere")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("~/runs", "/home/ada/runs"),
        ("~", "/home/ada"),
        ("$SCRATCH/vmcjob", "/scratch/ada/vmcjob"),
        ("${SCRATCH}x/$HOME", "/scratch/adax//home/ada"),
        ("/a~b/100%", "/a~b/100%"),
    ],
)
def test_home_and_variables_are_filled_in(tmp_path: Path, written: str, meant: str) -> None:
    """One profile serves all users of a machine."""
    environ = {"HOME": "/home/ada", "SCRATCH": "/scratch/ada"}
    path = profile(tmp_path, f'runs = "{written}"')
    assert load_site(path, environ).runs == Path(meant)


def test_a_variable_that_is_not_set_is_told(tmp_path: Path) -> None:
    """Left empty, it would put all runs into the root of the file system."""
    path = profile(tmp_path, '# mine\nruns = "$SCRATCH/vmcjob"\n')
    with pytest.raises(SpecError) as raised:
        load_site(path, {})
    assert str(raised.value) == (
        f"{path}:2:8: runs: the environment has no variable SCRATCH\n"
        '    runs = "$SCRATCH/vmcjob"\n'
        "           ^"
    )


def test_a_malformed_profile_is_told_like_a_malformed_spec(tmp_path: Path) -> None:
    path = profile(tmp_path, 'sheduler = "slurm"\nscheduler = "PBS Pro"\nmax_parallel = 0\n')
    with pytest.raises(SpecError) as raised:
        load_site(path, {})
    assert str(raised.value).replace(str(path), "site.toml") == (
        "site.toml:1:1: sheduler: unknown key; did you mean 'scheduler'?\n"
        '    sheduler = "slurm"\n'
        "    ^\n"
        'site.toml:2:13: scheduler: expected the name of a scheduler, like "slurm", got "PBS Pro"\n'
        '    scheduler = "PBS Pro"\n'
        "                ^\n"
        "site.toml:3:16: max_parallel: expected an integer of at least 1, got 0\n"
        "    max_parallel = 0\n"
        "                   ^"
    )


def test_a_profile_that_was_asked_for_has_to_exist(tmp_path: Path) -> None:
    """Falling back to another one would run jobs where nobody wanted them."""
    missing = tmp_path / "missing.toml"
    with pytest.raises(NotFoundError, match="no such file"):
        load_site(missing, {})
    with pytest.raises(NotFoundError, match=r"no such file; \$VMCJOB_SITE names it"):
        load_site(None, {"VMCJOB_SITE": str(missing)})


def test_folders_of_images_are_filled_in_like_other_paths(tmp_path: Path) -> None:
    """Left as they are written, they would refuse every image."""
    path = profile(tmp_path, '[container]\nimage_folders = ["$SHARED/images", "~/own"]')
    site = load_site(path, {"HOME": "/home/ada", "SHARED": "/shared"})
    assert site.container.image_folders == ("/shared/images", "/home/ada/own")
    with pytest.raises(SpecError, match=r"container.image_folders: .* no variable SHARED"):
        load_site(path, {"HOME": "/home/ada"})


def test_the_command_that_is_told_of_ends_can_be_started_from_anywhere(tmp_path: Path) -> None:
    """Words are those of a shell; what is no path, like an address, stays as it stands."""
    text = """notify = "~/bin/notify --to $USER 'two words' http://host//x" """
    site = load_site(profile(tmp_path, text), {"HOME": "/home/ada", "USER": "ada"})
    assert site.notify is not None
    words = shlex.split(site.notify)
    assert words == ["/home/ada/bin/notify", "--to", "ada", "two words", "http://host//x"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("notify 'me", "not a command: no closing quotation; quote it as for a shell"),
        ("./notify", "./notify starts at the current directory, and runs have others; expected a"),
        ("$NOBODY/notify", "the environment has no variable NOBODY"),
        (" ", "names no program"),
        ("", "expected a string of one line"),
    ],
)
def test_a_command_that_cannot_be_meant_is_told(tmp_path: Path, command: str, words: str) -> None:
    path = profile(tmp_path, f'notify = "{command}"')
    with pytest.raises(SpecError) as raised:
        load_site(path, {"HOME": "/home/ada"})
    assert f"{path}:1:10: notify: " in str(raised.value)
    assert words in str(raised.value)


def test_each_document_knows_the_keys_of_the_other() -> None:
    """A key that is added to one would be called unknown in the other, without its place."""
    profiles, specs = {*keys_of(Site)}, {*keys_of(JobSpec), *keys_of(Variations)}
    assert (set(PROFILE_KEYS), set(SPEC_KEYS)) == (profiles - specs, specs - profiles)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1h", "01:00:00"),
        ("90 min", "01:30:00"),
        ("1d 2h", "26:00:00"),
        ("2h90m", "03:30:00"),
        ("30", "30"),
        ("soon", "soon"),
    ],
)
def test_a_time_with_units_becomes_a_wall_time(text: str, meant: str) -> None:
    """30 stays: minutes to sbatch, hours to many people."""
    assert WALL_TIME.repair is not None
    assert WALL_TIME.repair(text) == meant
