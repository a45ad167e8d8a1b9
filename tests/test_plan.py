"""The runs that a spec asks for, and their names."""

import re

from vmcjob.plan import Task, make_plan
from vmcjob.spec import parse_spec

DIATOMIC = """
name = "h2"
{keys}
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, "{{R}}"]]
[sweep]
R = [1.0, 1.4]
"""


def tasks(text: str) -> tuple[Task, ...]:
    return make_plan(parse_spec(text, "h2.toml")).tasks


def test_a_plan_has_a_task_for_each_point_and_seed() -> None:
    plan = make_plan(parse_spec(DIATOMIC.format(keys="seeds = [3, 4]"), "h2.toml"))
    assert plan.source == "h2.toml"
    assert [(task.point, task.seed) for task in plan.tasks] == [
        ({"R": 1.0}, 3),
        ({"R": 1.0}, 4),
        ({"R": 1.4}, 3),
        ({"R": 1.4}, 4),
    ]
    assert all(task.seed == task.spec.seed and task.name == "h2" for task in plan.tasks)


def test_every_task_has_a_name_of_its_own() -> None:
    """Two tasks of one name would write into one directory."""
    names = [task.run_id for task in tasks(DIATOMIC.format(keys="seeds = [3, 4, 5]"))]
    assert len(set(names)) == 6
    assert all(re.fullmatch("h2-[0-9a-f]{10}", name) for name in names)


def test_seeds_share_their_science() -> None:
    """Runs that differ by their seeds only are averaged; nothing else may be."""
    digests = [task.science_sha256 for task in tasks(DIATOMIC.format(keys="seeds = [3, 4]"))]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


def test_planning_again_finds_the_same_names() -> None:
    """Submitting twice is harmless only if the second time leads to the same directories."""
    text = DIATOMIC.format(keys="seed = 3")
    assert tasks(text) == tasks(text)


def test_more_resources_leave_the_name_alone() -> None:
    """A longer wall time continues a run that was stopped."""
    text = DIATOMIC.format(keys='resources.time = "48:00:00"\noutput.snapshots = 100')
    plain = DIATOMIC.format(keys="")
    assert [task.run_id for task in tasks(text)] == [task.run_id for task in tasks(plain)]


def test_a_point_alone_has_the_name_that_it_has_in_the_sweep() -> None:
    """A run of the sweep is reused by the spec of that one molecule, and the other way round."""
    alone = 'name = "h2"\n[system]\natoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]\n'
    assert tasks(alone)[0].run_id == tasks(DIATOMIC.format(keys=""))[1].run_id
