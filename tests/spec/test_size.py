"""The size of a job from closed formulas, held against what flax makes of it."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.test_golden import FINISHED, unpack
from vmcjob.columns import OBSERVABLES
from vmcjob.errors import SpecError
from vmcjob.observables import Subject, columns_of
from vmcjob.run.calculation import build
from vmcjob.run.optimizer import COLUMNS
from vmcjob.spec import JobSpec, format_bytes, load_resolved, measure, parse_spec
from vmcjob.spec.size import EVALUATE_COLUMNS, MAX_RESPONDING, MORE_COLUMNS, TRAIN_COLUMNS
from vmcjob.store import Checkpoint, Commit, Layout, RunStore
from vmcjob.store.layout import SERIES
from vmcjob.vmc import response

ATOMS = {
    "H": '[["H", 0, 0, 0]]',
    "He": '[["He", 0, 0, 0]]',
    "LiH": '[["Li", 0, 0, 0], ["H", 0, 0, 3]]',
    "H2O": '[["O", 0, 0, 0], ["H", 0, 0, 2], ["H", 0, 2, 0]]',
    "NaH": '[["Na", 0, 0, 0], ["H", 0, 0, 3.6]]\necp = "ccecp"',
    "Sc": '[["Sc", 0, 0, 0]]',
}


def job(atoms: str, ansatz: str = "", more: str = "") -> JobSpec:
    text = f'name = "x"\n{more}\n[system]\natoms = {ATOMS[atoms]}\n[ansatz]\n{ansatz}\n'
    return parse_spec(text, "x.toml").points[0].spec


def count_with_flax(spec: JobSpec) -> int:
    r = jax.ShapeDtypeStruct((spec.system.n_electrons, 3), jnp.float32)
    calculation = build(spec, None)
    init = calculation.ansatz.init
    params = jax.eval_shape(init, jax.random.key(0), r, calculation.vmc.nuclei)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("atoms", ["H", "He", "LiH", "H2O", "NaH"])
@pytest.mark.parametrize(
    "ansatz",
    [
        "",
        "determinants = 3\nfull_determinants = false\nlayers = 4\njastrow = false",
        "layers = 1\none_electron_width = 5\ntwo_electron_width = 3",
        'kind = "psiformer"',
        'kind = "psiformer"\nheads = 2\nhead_width = 3\nmlp_width = 5\nlayer_norm = true',
        'kind = "slater-jastrow"',
        'kind = "slater-jastrow"\nfunctions = 3\njastrow_order = 1\ndeterminants = 2',
        'kind = "slater-jastrow"\njastrow_order = 4\nfull_determinants = true',
    ],
)
def test_parameters_are_as_many_as_flax_makes(atoms: str, ansatz: str) -> None:
    spec = job(atoms, ansatz)
    assert measure(spec).parameters == count_with_flax(spec)


@pytest.mark.parametrize(
    ("atoms", "more"),
    [
        ("He", "system.spin = 2"),
        ("LiH", "system.charge = -1"),
        ("H2O", "system.spin = 4"),
        ("Sc", ""),
    ],
)
def test_around_ions_a_classical_function_is_about_as_large(atoms: str, more: str) -> None:
    """Where electrons start is worked out with the rest of the physics, and not here."""
    text = f'name = "x"\n{more}\nsystem.atoms = {ATOMS[atoms]}\nansatz.kind = "slater-jastrow"\n'
    spec = parse_spec(text, "x.toml").points[0].spec
    assert measure(spec).parameters == pytest.approx(count_with_flax(spec), rel=0.3)


@pytest.mark.parametrize(
    ("optimizer", "memory"),
    [
        ("spring", 512 * 5306 * 4 + 512**2 * 4),
        ("minsr", 512 * 5306 * 4 + 512**2 * 4),
        ("sr", 0),
        ("adam", 0),
    ],
)
def test_scores_are_counted_where_they_are_a_matrix(optimizer: str, memory: int) -> None:
    """H2 of the README: 5306 parameters, 512 walkers of 2 electrons, in float32."""
    text = f"""name = "h2"
optimizer.kind = "{optimizer}"
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]
"""
    size = measure(parse_spec(text, "h2.toml").points[0].spec)
    walkers = 512 * 2 * 3 * 4
    remembered = {"spring": 1, "adam": 2}.get(optimizer, 0)
    assert size.parameters == 5306
    assert size.memory_bytes == 5306 * 4 + walkers + memory
    rows = 1000 * (14 + MORE_COLUMNS.get(optimizer, 0)) * 8 + 1000 * 8 * 8
    checkpoints = 2 * (5306 * 4 * (2 + remembered) + walkers)  # of it, the average of parameters
    assert size.store_bytes == checkpoints + 10 * walkers + rows + 2**15


def test_the_response_to_two_nuclei_is_counted() -> None:
    """Six vectors of parameters, on devices and in both checkpoints, and the scores of its fit."""
    atoms = '[system]\natoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]\n'
    text = f'name = "h2"\noptimizer.kind = "sr"\n{atoms}[evaluate]\nobservables = '
    sizes = [
        measure(parse_spec(f'{text}["{name}"]\n', "h2.toml").points[0].spec)
        for name in ("forces", "r2")
    ]

    def memory(n_walkers: int, warmup: int = 100) -> int:
        more = f'["forces"]\nwarmup = {warmup}\n[sampler]\nwalkers = {n_walkers}\n'
        return measure(parse_spec(text + more, "h2.toml").points[0].spec).memory_bytes

    vectors, scores = 6 * 5306 * 4, 512 * 5306 * 4 + 512**2 * 4
    assert sizes[0].memory_bytes - sizes[1].memory_bytes == vectors + scores
    assert sizes[0].store_bytes - sizes[1].store_bytes >= 2 * vectors
    assert MAX_RESPONDING == response.MAX_WALKERS
    assert memory(200_000) - memory(100_000) == 100_000 * 2 * 3 * 4  # the walkers alone
    assert memory(512, warmup=0) == sizes[1].memory_bytes + vectors


def test_columns_are_as_many_as_a_store_has() -> None:
    """Of every kind of optimizer, and of every observable: one more is one more to count here."""
    assert 1 + len(SERIES["train"]) == TRAIN_COLUMNS
    assert 1 + len(SERIES["evaluate"]) == EVALUATE_COLUMNS
    more = {kind.kind: len(columns) for kind, columns in COLUMNS.items()}
    assert {kind: n for kind, n in more.items() if n} == MORE_COLUMNS
    for n_nuclei in (1, 3):
        subject = Subject(n_nuclei=n_nuclei)
        for name, declared in OBSERVABLES.items():
            columns = columns_of([name], subject).values()
            assert declared.numbers(n_nuclei) == sum(math.prod(one.shape) for one in columns)


@pytest.mark.parametrize("run_id", sorted({"kfac-f887501e79", FINISHED}))
def test_a_store_is_about_as_large_as_was_said(run_id: str, tmp_path: Path) -> None:
    """Runs of an earlier release, so small that what describes them is half of it."""
    run = unpack(tmp_path).runs / run_id
    spec = load_resolved((run / "spec.toml").read_text(), "spec.toml")
    assert 0.5 < measure(spec).store_bytes / size_of(run / "run.zarr") < 2.0


@pytest.mark.parametrize("observables", [(), ("density", "dipole")])
def test_a_store_grows_with_its_steps(observables: tuple[str, ...], tmp_path: Path) -> None:
    """Every row is written, with two checkpoints: parameters, their average, and two moments."""
    names = ", ".join(f'"{name}"' for name in observables)
    more = f"train.steps = 20_000\nevaluate = {{ steps = 30_000, observables = [{names}] }}"
    spec = job("He", more=f'{more}\noptimizer.kind = "adam"\nsampler.walkers = 16')
    layout = Layout(20_000, 30_000, 16, 2, 10, observed=columns_of(observables), observe_every=10)
    store = RunStore.create(
        tmp_path / "run.zarr", run_id="x", spec_text="", provenance={}, layout=layout
    )
    train = dict.fromkeys(layout.columns("train"), np.ones(20_000))
    evaluate = dict.fromkeys(layout.columns("evaluate"), np.ones(30_000))
    observed = {name: np.ones((3000, *column.shape)) for name, column in layout.observed.items()}
    snapshots = [(3000 * (k + 1), np.zeros((16, 2, 3), np.float32)) for k in range(10)]
    numbers = {"numbers": np.zeros(4 * measure(spec).parameters + 96, np.float32)}
    store.commit(Commit(train=train, checkpoint=Checkpoint("train", 20_000, numbers)))
    store.commit(
        Commit(
            evaluate=evaluate,
            observed=observed,
            snapshots=snapshots,
            checkpoint=Checkpoint("evaluate", 30_000, numbers),
        )
    )
    assert measure(spec).store_bytes == pytest.approx(size_of(store.path), rel=0.15)


def size_of(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


HUGE = """name = "h"
[system]
atoms = [["H", 0, 0, 0], ["H", 0, 0, 1.4]]
[sampler]
walkers = 1_000_000
[ansatz]
determinants = 10_000
layers = 1000
"""


def test_what_no_device_can_hold_is_not_valid() -> None:
    with pytest.raises(SpecError) as refusal:
        parse_spec(HUGE, "h.toml")
    assert str(refusal.value) == (
        "h.toml:4:1: sampler: 1000000 walkers and 5165338 parameters need at least 22.4 TiB of "
        "memory, more than 1 x 1 TiB, and no device has as much\n    [sampler]\n    ^"
    )
    on_many = HUGE + "[resources]\nnodes = 8\ngpus = 4\n"
    assert parse_spec(on_many, "h.toml").points


def test_what_is_more_than_was_asked_for_is_not_valid() -> None:
    """On processors, memory is what [resources] says it is."""
    text = 'name = "h"\nsystem.atoms = [["H", 0, 0, 0]]\nsampler.walkers = 35_000\n'
    more = text + 'resources = { gpus = 0, mem = "4GB" }\n'
    with pytest.raises(SpecError) as refusal:
        parse_spec(more, "h.toml")
    assert str(refusal.value).splitlines()[0] == (
        "h.toml:3:1: sampler: 35000 walkers and 2934 parameters need at least 4.95 GiB of memory, "
        "and resources.mem asks for 4 GiB in all"
    )
    assert parse_spec(more.replace("4GB", "8GB"), "h.toml").points
    assert parse_spec(more.replace("gpus = 0", "gpus = 1"), "h.toml").points


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3.4 * 2**20, "3.4 MiB"), (2**50, "1 PiB")],
)
def test_an_amount_of_memory_has_its_largest_unit(n_bytes: float, text: str) -> None:
    assert format_bytes(n_bytes) == text
