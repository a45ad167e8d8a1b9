"""Many jobs from one spec."""

import time

import pytest

from vmcjob.errors import SpecError
from vmcjob.plan import make_plan
from vmcjob.spec import FermiNet, dump_spec, load_resolved, parse_spec, science_sha256

DIATOMIC = """
name = "h2"
{seeds}
[system]
atoms = [["H", 0, 0, "{{-R/2}}"], ["H", 0, 0, "{{ (R + 0) / 2 }}"]]
[sweep]
{sweep}
"""


def diatomic(sweep: str, seeds: str = "") -> str:
    return DIATOMIC.format(sweep=sweep, seeds=seeds)


def test_one_job_has_no_coordinates() -> None:
    """A table of results has a column for each coordinate: a lone job must not invent one."""
    (point,) = parse_spec('name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\n', "h.toml").points
    assert point.coordinates == {}


def test_the_first_key_is_the_slowest_and_seeds_are_the_fastest() -> None:
    """The order of the file is the order of the queue; the plan of a user counts on it."""
    text = diatomic('R = [1, 2.5]\n"optimizer.damping" = [1e-3, 1e-2]', "seeds = [7, 3]")
    points = parse_spec(text, "h2.toml").points
    found = [(p.coordinates["R"], p.coordinates["optimizer.damping"], p.spec.seed) for p in points]
    assert found == [
        (1, 1e-3, 7),
        (1, 1e-3, 3),
        (1, 1e-2, 7),
        (1, 1e-2, 3),
        (2.5, 1e-3, 7),
        (2.5, 1e-3, 3),
        (2.5, 1e-2, 7),
        (2.5, 1e-2, 3),
    ]


def test_every_point_has_its_values_in_place() -> None:
    """The coordinates say what was swept, the spec has to have it too."""
    text = diatomic('R = [1, 2.5]\n"sampler.steps" = [5, 20]')
    for point in parse_spec(text, "h2.toml").points:
        bottom, top = (atom.position[2] for atom in point.spec.system.atoms)
        assert (top - bottom, top + bottom) == (point.coordinates["R"], 0.0)
        assert point.spec.sampler.steps == point.coordinates["sampler.steps"]


def test_a_swept_key_takes_the_place_of_the_one_in_its_table() -> None:
    """A sweep is added to a spec that works, without taking it apart."""
    text = diatomic('R = [1.4]\n"sampler.steps" = [5]') + "[sampler]\nsteps = 10\nwidth = 0.5\n"
    (point,) = parse_spec(text, "h2.toml").points
    assert (point.spec.sampler.steps, point.spec.sampler.width) == (5, 0.5)


def test_strings_and_truth_values_can_be_swept() -> None:
    """Comparing precisions, or an ansatz with and without a factor, are sweeps like any other."""
    text = diatomic(
        'R = [1.4]\n"numerics.dtype" = ["float32", "float64"]\n"ansatz.jastrow" = [true, false]'
    )
    points = parse_spec(text, "h2.toml").points
    found = [(p.spec.numerics.dtype, p.spec.ansatz) for p in points]
    assert found == [
        ("float32", FermiNet(core_holes=False, jastrow=True)),
        ("float32", FermiNet(core_holes=False, jastrow=False)),
        ("float64", FermiNet(core_holes=False, jastrow=True)),
        ("float64", FermiNet(core_holes=False, jastrow=False)),
    ]


def test_a_variable_may_be_called_like_a_key() -> None:
    """Only a name that no atom uses is taken for a forgotten full name."""
    text = (
        'name = "h2"\nsystem.atoms = [["H", 0, 0, 0], ["H", 0, 0, "{width}"]]\nsweep.width = [1, 2]'
    )
    assert len(parse_spec(text, "h2.toml").points) == 2


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{R}", 1.5),
        ("{-R}", -1.5),
        ("{+R - -1}", 2.5),
        ("{2 * (R + 1) / 4 - .5e1}", -3.75),
        ("{1 - 2 - 3}", -4.0),
        ("{8 / 4 / 2 + R}", 2.5),
        (" { R } ", 1.5),
    ],
)
def test_coordinates_are_computed_as_on_paper(expression: str, value: float) -> None:
    """Left to right, products before sums; worked out by hand."""
    text = f'name = "h"\nsystem.atoms = [["H", "{expression}", 0, "{{R}}"]]\nsweep.R = [1.5]\n'
    (point,) = parse_spec(text, "h.toml").points
    assert point.spec.system.atoms[0].position == (value, 0.0, 1.5)


@pytest.mark.parametrize(
    "expression",
    [
        "{R**2}", "{R//2}", "{R%2}", "{R if R else 1}", "{R and 1}", "{not R}", "{R < 1}",
        "{R.real}", "{R[0]}", "{(R, 1)}", "{True}", "{None}", "{1j}", "{0x10}", "{1_0}", "{'R'}",
        "{R; R}", "{lambda: R}", "{R := 1}", "{*R}", "{}", "{{R}}", "{()}", "{1if R}", "{é}",
        "{__import__}()}", "{" + "(" * 90 + "R" + ")" * 91 + "}", "{" + "-" * 300 + "R}",
    ],
)  # fmt: skip
def test_nothing_but_arithmetic_is_computed(expression: str) -> None:
    """A spec may come from a stranger: it is data, never a program."""
    text = f'name = "h"\nsystem.atoms = [["H", "{expression}", 0, "{{R}}"]]\nsweep.R = [1.5]\n'
    with pytest.raises(
        SpecError, match=r"h.toml:2:23: system.atoms\[0\]\[1\]: \"{.*(made of|longer)"
    ):
        parse_spec(text, "h.toml")


def test_a_complaint_of_every_point_is_made_once() -> None:
    """A slip that has nothing to do with the sweep must not be repeated a hundred times."""
    text = diatomic("R = [1, 2, 3, 4]") + '[sampler]\nsteps = "ten"\n'
    with pytest.raises(SpecError) as raised:
        parse_spec(text, "h2.toml")
    assert len(raised.value.problems) == 1


ZEROS = """
name = "h2"
[system]
atoms = [["H", 0, 0, -5], ["H", 0, 0, "{{R}}"]]
[sweep]
R = [{values}]
"""


def test_a_negative_zero_is_zero() -> None:
    """Two run ids for one geometry would be two runs, each taken for its own point."""
    plans = [
        make_plan(parse_spec(ZEROS.format(values=value), "h2.toml")) for value in ("0.0", "-0.0")
    ]
    assert plans[0].tasks == plans[1].tasks
    assert str(plans[1].tasks[0].point["R"]) == "0.0"
    with pytest.raises(SpecError) as refusal:
        parse_spec(ZEROS.format(values="0.0, -0.0"), "h2.toml")
    assert str(refusal.value) == (
        "h2.toml:6:11: sweep.R[1]: 0.0 is already in the list\n    R = [0.0, -0.0]\n              ^"
    )
    (point,) = parse_spec(ZEROS.format(values="0.0").replace("{R}", "{-R}"), "h2.toml").points
    assert load_resolved(dump_spec(point.spec), "spec.toml") == point.spec
    assert science_sha256(point.spec) == plans[0].tasks[0].science_sha256


def test_a_broken_sweep_does_not_hide_other_complaints() -> None:
    """All problems at once; and a variable that is misspelt in one place is not blamed in two."""
    text = diatomic('R = ["x"]', "seeds = []") + "[sampler]\nstep = 3\n"
    with pytest.raises(SpecError) as raised:
        parse_spec(text, "h2.toml")
    blamed = [problem.split(": ")[1] for problem in raised.value.problems]
    assert blamed == ["seeds", "sweep.R[0]", "sampler.step"]


def test_expanding_takes_time_in_proportion_to_the_number_of_jobs() -> None:
    """`validate` is typed after every edit: comparing each job with each other would be felt."""

    def seconds(n_values: int) -> float:
        values = ", ".join(str(i) for i in range(1, n_values + 1))
        text = diatomic(f'R = [{values}]\n"sampler.steps" = [{values}]')
        start = time.process_time()
        assert len(parse_spec(text, "h2.toml").points) == n_values**2
        return time.process_time() - start

    seconds(10)
    assert seconds(50) < 5 * 25 * min(seconds(10) for _ in range(3))


def test_a_resolved_spec_is_one_job() -> None:
    """A run directory that somebody has edited into a sweep is refused, not half run."""
    text = diatomic("R = [1, 2]")
    with pytest.raises(SpecError, match="expected one job, got 2"):
        load_resolved(text, "spec.toml")
