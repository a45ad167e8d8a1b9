"""What is settled before JAX starts."""

import json
import os
import subprocess
import sys
from functools import cache

import jax
import pytest

from tests.matrix import rest
from vmcjob.fwdlap import elimination
from vmcjob.run import startup
from vmcjob.run.startup import (
    FOR_CPUS,
    FOR_GPUS,
    MANY_THREADS,
    ONLY_PRODUCTS,
    PLAIN_LOOPS,
    XLA_FLAGS,
)
from vmcjob.spec import parse_spec

PROGRAM = (
    "import json, os; from vmcjob.run.startup import import_jax; import_jax(); "
    "print(json.dumps(dict(os.environ)))"
)
OURS = "NPROC", "OPENBLAS_NUM_THREADS", XLA_FLAGS


@cache
def settings(**variables: str) -> dict[str, str]:
    """All variables when JAX is imported, in a process with these variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def threads(of: str = "NPROC", **variables: str) -> int:
    """The size of XLA's pool, or another library's, in a process with these variables."""
    return int(settings(**variables)[of])


def test_xla_has_more_threads_than_batches_that_wait_for_them() -> None:
    """With two threads, on two processors, two such batches wait for each other for ever."""
    assert threads() >= MANY_THREADS


@pytest.mark.parametrize(
    ("atom", "full", "optimizer", "is_small"),
    [
        ("S", "true", "spring", True),  # 16 electrons
        ("Cl", "true", "spring", False),
        ("Cl", "false", "spring", True),  # 9 of spin up
        ("Be", "true", "kfac", False),
    ],
)
def test_as_many_threads_as_processors_are_enough_without_such_batches(
    monkeypatch, atom: str, full: str, optimizer: str, is_small: bool
) -> None:
    """Matrices that are small enough are eliminated by a program of ours."""
    assert startup.MAX_ELIMINATED == elimination.MAX_ELIMINATED
    text = (
        f'name = "atom"\n[system]\natoms = [["{atom}", 0.0, 0.0, 0.0]]\n'
        f'[ansatz]\nfull_determinants = {full}\n[optimizer]\nkind = "{optimizer}"\n'
    )
    spec = parse_spec(text, "atom.toml").points[0].spec
    several = "--xla_force_host_platform_device_count=4"
    for flags, at_least in (("", 2 if is_small else MANY_THREADS), (several, MANY_THREADS)):
        monkeypatch.delenv("NPROC")
        monkeypatch.setenv(XLA_FLAGS, flags)
        startup.settle_libraries(spec)
        assert int(os.environ["NPROC"]) == max(at_least, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("wish", ["3", *rest("64")])
def test_who_sets_the_threads_is_heeded(wish: str) -> None:
    """A site may know better."""
    assert threads(NPROC=wish) == int(wish)


def test_linear_algebra_has_one_thread_beside_those_of_xla() -> None:
    """More of them wait for one another at full speed; but who wants them has them."""
    name = "OPENBLAS_NUM_THREADS"
    assert threads(name) == 1
    assert threads(name, OPENBLAS_NUM_THREADS="2") == 2


def test_a_setting_that_jax_cannot_read_is_named_with_all_others() -> None:
    """JAX_PLATFORMS is not to blame for what another one says."""
    program = (
        "from vmcjob.errors import DeviceError\nfrom vmcjob.run.startup import import_jax\n"
        "try:\n    import_jax()\nexcept DeviceError as error:\n    print(error)"
    )
    settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "bananas"}
    inherited = {name: value for name, value in os.environ.items() if name[:4] != "JAX_"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=inherited | settings, capture_output=True, text=True)
    assert done.stdout == (
        "JAX cannot be imported with JAX_ENABLE_X64=bananas, JAX_PLATFORMS=cpu: invalid truth "
        "value 'bananas' for environment 'JAX_ENABLE_X64'\n"
    )


@pytest.mark.parametrize(
    ("release", "known"),
    [
        ("0.9.1", (ONLY_PRODUCTS, PLAIN_LOOPS, *FOR_CPUS)),
        ("0.11.0", (ONLY_PRODUCTS, PLAIN_LOOPS, *FOR_CPUS)),
        ("0.11.1", (ONLY_PRODUCTS, *FOR_CPUS)),
        ("0.12.0.1", (ONLY_PRODUCTS, *FOR_CPUS)),
        ("0.13.0", ()),
        ("0.8.2", ()),
        ("1.0", ()),
        ("of today", ()),
    ],
)
def test_xla_is_told_what_its_release_knows(monkeypatch, release: str, known: tuple) -> None:
    """It ends a process that says what it does not know. Beside what else is said to it."""
    monkeypatch.setattr(startup.metadata, "version", lambda of: release)
    monkeypatch.setattr(startup.metadata, "entry_points", lambda group: ())
    devices = "--xla_force_host_platform_device_count=2"
    for said in ([], [devices]):
        monkeypatch.setenv(XLA_FLAGS, " ".join(said))
        startup.settle_libraries()
        assert os.environ[XLA_FLAGS].split() == [*said, *map(str, known)]


def test_who_tells_xla_otherwise_is_heeded(monkeypatch) -> None:
    """Flag by flag; what a file of flags says is not looked into."""
    monkeypatch.setattr(startup.metadata, "version", lambda of: "0.10.2")
    monkeypatch.setattr(startup.metadata, "entry_points", lambda group: ())
    other = f"{ONLY_PRODUCTS.name}=LIBRARY_FUSION_TYPE_REDUCE"
    rest = " ".join(map(str, (PLAIN_LOOPS, *FOR_CPUS)))
    for said, heard in ((other, f"{other} {rest}"), ("flags.txt", "flags.txt")):
        monkeypatch.setenv(XLA_FLAGS, said)
        startup.settle_libraries()
        assert os.environ[XLA_FLAGS] == heard


@pytest.mark.parametrize(("platforms", "heard"), [("", FOR_GPUS), ("cpu", FOR_CPUS)])
def test_a_compiler_for_gpus_hears_what_is_for_them_and_nothing_that_is_for_cpus(
    monkeypatch, platforms: str, heard: tuple
) -> None:
    """It may be one's where JAX has a plugin; not where it is told to leave that alone."""
    monkeypatch.setattr(startup.metadata, "entry_points", lambda group: ("cuda",))
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setenv(XLA_FLAGS, "")
    startup.settle_libraries()
    told = os.environ[XLA_FLAGS].split()
    assert {flag for flag in (*FOR_CPUS, *FOR_GPUS) if str(flag) in told} == set(heard)


# What is for CPUs is told to each XLA of these tests.
@pytest.mark.parametrize("for_gpus", [True, *rest(False)])
def test_this_xla_knows_what_it_is_told(for_gpus: bool) -> None:
    """As it would end the process otherwise. On a machine with a GPU or without, it is the same."""
    program = (
        f"from vmcjob.run import startup; startup._has_plugin = lambda: {for_gpus}\n"
        "startup.import_jax(); import jax; jax.devices()"
    )
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    environment = inherited | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=120, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's mallopt")
def test_memory_of_a_step_stays_for_the_next_step() -> None:
    """The system would clear 2**15 pages again; options in the environment are left alone."""
    program = (
        "import resource, numpy as np\n"
        "from vmcjob.run.startup import settle_libraries; settle_libraries()\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "np.ones(2**24); before = faults(); np.ones(2**24); print(faults() - before)"
    )
    n_pages = 2**27 // os.sysconf("SC_PAGE_SIZE")
    seen = []
    for said in ({}, {"MALLOC_ARENA_MAX": "8"}):
        environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env=environment | said, capture_output=True, text=True, timeout=120
        )
        seen.append(int(done.stdout))
    assert seen[0] < n_pages // 100
    assert seen[1] > seen[0]  # huge pages are few


def test_a_sum_over_nuclei_is_compiled_by_xla_itself() -> None:
    """The flag is known to this jaxlib, and does what it is for: from 0.10 on."""
    program = (
        "from vmcjob.run.startup import import_jax; import_jax()\n"
        "import jax, jax.numpy as jnp\n"
        "f = lambda x: jnp.sum(jnp.exp(x[:, :, None, None] * x[0]), axis=1)\n"
        "print(jax.jit(f).lower(jnp.ones((256, 4, 4))).compile().as_text().count('ynn_fusion'))"
    )
    seen = []
    for said in ({}, {XLA_FLAGS: f"{ONLY_PRODUCTS.name}=LIBRARY_FUSION_TYPE_REDUCE"}):
        inherited = {name: value for name, value in os.environ.items() if name not in OURS}
        command = [sys.executable, "-c", program]
        environment = inherited | {"JAX_PLATFORMS": "cpu"} | said
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        seen.append(int(done.stdout))
    assert seen[0] == 0
    assert seen[1] > 0 or jax.__version_info__ < (0, 10)


@pytest.mark.parametrize("length", [4, *rest(2**12)])
def test_what_is_kept_in_a_loop_is_compiled_however_short_it_is(length: int) -> None:
    """XLA would make one kernel of such a loop, and knows no barriers there."""
    program = (
        "from vmcjob.run.startup import import_jax; import_jax()\n"
        "import jax, jax.numpy as jnp\n"
        "from vmcjob import fwdlap\n"
        "turn = lambda x, _: (jnp.roll(fwdlap.tanh(x), 1), None)\n"
        "many = jax.jit(lambda x: jax.lax.scan(turn, x, length=5)[0])\n"
        f"x = jnp.linspace(0.0, 1.0, {length})\n"
        "expected = x\n"
        "for _ in range(5): expected, _ = turn(expected, None)\n"
        "print(float(jnp.max(jnp.abs(many(x) - expected))))"
    )
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    command = [sys.executable, "-c", program]
    environment = inherited | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert float(done.stdout) < 1e-6  # a few roundings
