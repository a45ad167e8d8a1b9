"""The runs that a spec asks for, and their names."""

import re
from typing import Any

import pytest

from vmcjob.errors import SpecError
from vmcjob.plan import Task, make_longer, make_plan, make_trained_on
from vmcjob.scheduler.records import make_record
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


TEXT_OF_TRAINING = """name = "h2"
seeds = [0, 1]
[system]
atoms = [["H", 0.0, 0.0, 0.0], ["H", 0.0, 0.0, 1.4]]
[train]
steps = 100
"""


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


CHAIN = """
name = "h2"
seeds = [3, 4]
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, "{{R}}"]]
[pretrain]
steps = 70
active_space = [2, 2]
[train]
start_from = "@previous"
[sweep]
R = [{values}]
"""


def test_in_a_chain_each_run_starts_from_the_nearest_listed_before_of_its_own_seed() -> None:
    """Two ways from the middle; of two as near, the later one; only the first is pretrained."""
    found = tasks(CHAIN.format(values="1.5, 1.0, 0.5, 2, 1.25"))
    by_id = {task.run_id: task for task in found}
    starts = {}
    for task in found:
        origin = by_id.get(task.spec.train.start_from or "")
        assert origin is None or origin.seed == task.seed
        assert (task.spec.pretrain.steps, len(task.spec.pretrain.active_space)) == (
            (70, 2) if origin is None else (0, 0)
        )
        starts[task.point["R"]] = None if origin is None else origin.point["R"]
    assert starts == {1.5: None, 1.0: 1.5, 0.5: 1.0, 2: 1.5, 1.25: 1.0}


def test_runs_of_a_chain_keep_their_names_when_it_grows() -> None:
    """What is there already is not computed again when a distance is added."""
    short, long = (
        tasks(CHAIN.format(values="1.4, 1.2")),
        tasks(CHAIN.format(values="1.4, 1.2, 1.0")),
    )
    assert short == long[: len(short)]


def test_seeds_of_a_chain_are_pooled_though_each_has_a_start_of_its_own() -> None:
    """Not with another point, another training before, or other evaluation steps."""
    plain = tasks(CHAIN.format(values="1.4, 1.2, 1.0"))
    other = tasks(CHAIN.format(values="1.4, 1.2, 1.0").replace("70", "80"))
    longer = [make_longer(task, 10) for task in plain]
    pools = [
        {make_record("h2.toml", task).calculation_sha256 for task in (one, two)}
        for found in (plain, other, longer)
        for one, two in zip(found[::2], found[1::2], strict=True)
    ]
    assert [len(digests) for digests in pools] == [1] * 9
    assert len(set.union(*pools)) == 9


def test_a_longer_run_tells_by_which_flag_it_is_longer() -> None:
    """Steps that follow from a target were said to come from --more-steps, which nobody typed."""
    task = tasks(CHAIN.format(values="1.4"))[0]
    steps, target = "evaluate.steps", "evaluate.target_error"

    def origins(**given: Any) -> tuple[str | None, str | None]:
        found = make_longer(task, 10, **given).origins or {}
        return found.get(steps), found.get(target)

    assert origins() == ("resume --more-steps 10", None)
    by = "resume --target-error 0.0001"
    assert origins(target_error=1e-4) == ("resume --more-steps 10", by)
    assert origins(target_error=1e-4, is_reckoned=True) == (by, by)


@pytest.mark.parametrize(
    "sweep",
    [
        "",
        '[sweep]\n"optimizer.damping" = [1e-3]\nR = [1.0, 1.2]',
        '[sweep]\n"optimizer.kind" = ["spring", "kfac"]',
    ],
)
def test_a_chain_needs_one_line_of_numbers(sweep: str) -> None:
    text = (
        CHAIN.partition("[sweep]")[0]
        .format()
        .replace('"{R}"', "1.4" if "R" not in sweep else '"{R}"')
    )
    with pytest.raises(
        SpecError, match=r'start_from: "@previous" goes along \[sweep\]; expected one'
    ):
        tasks(text + sweep)


def test_runs_that_train_on_have_ids_of_their_own_and_pool_their_seeds() -> None:
    """Not that of one longer training, whose learning rate goes on; each seed has its own start."""
    tasks = make_plan(parse_spec(TEXT_OF_TRAINING, "h2.toml")).tasks
    further = [make_trained_on(task, 200) for task in tasks]
    longer = make_plan(parse_spec(TEXT_OF_TRAINING.replace("100", "300"), "h2.toml")).tasks
    ids = {task.run_id for task in (*tasks, *further, *longer)}
    assert len(ids) == 6
    for task, origin in zip(further, tasks, strict=True):
        assert task.spec.train.start_from == origin.run_id
        assert (task.spec.train.steps, task.spec.pretrain.steps) == (200, 0)
        assert task.spec.evaluate == origin.spec.evaluate
        assert make_trained_on(origin, 200) == task
    assert further[0].pool_sha256 is not None
    assert further[0].pool_sha256 == further[1].pool_sha256
    assert further[0].pool_sha256 != make_trained_on(tasks[0], 201).pool_sha256
