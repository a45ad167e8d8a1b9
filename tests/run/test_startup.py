"""What is settled before JAX starts."""

import os
import subprocess
import sys

import pytest

from vmcjob.run import startup
from vmcjob.run.startup import MIN_THREADS, ONLY_PRODUCTS, XLA_FLAGS

PROGRAM = (
    "import os; from vmcjob.run.startup import import_jax; import_jax(); print(os.environ[{!r}])"
)
OURS = "NPROC", "OPENBLAS_NUM_THREADS", XLA_FLAGS


def setting(of: str, **variables: str) -> str:
    """What a variable is when JAX is imported, in a process with these variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(of)],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def threads(of: str = "NPROC", **variables: str) -> int:
    """The size of XLA's pool, or another library's, in a process with these variables."""
    return int(setting(of, **variables))


def test_xla_has_more_threads_than_batches_that_wait_for_them() -> None:
    """With two threads, on two processors, two such batches wait for each other for ever."""
    assert threads() >= MIN_THREADS


@pytest.mark.parametrize("wish", ["3", "64"])
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


def test_xla_keeps_its_sums() -> None:
    """Beside what else is said to it; who says otherwise, or says it in a file, is heeded."""
    name, value = ONLY_PRODUCTS
    assert setting(XLA_FLAGS) == f"{name}={value}"
    devices = "--xla_force_host_platform_device_count=2"
    assert setting(XLA_FLAGS, XLA_FLAGS=devices) == f"{devices} {name}={value}"
    for said in (f"{name}=LIBRARY_FUSION_TYPE_REDUCE", "flags.txt"):
        assert setting(XLA_FLAGS, XLA_FLAGS=said) == said


@pytest.mark.parametrize("release", ["0.13.0", "0.8.2", "1.0", "of today"])
def test_a_jaxlib_that_may_not_know_the_flag_is_not_told(monkeypatch, release: str) -> None:
    """XLA ends a process that says what it does not know."""
    monkeypatch.setattr(startup.metadata, "version", lambda of: release)
    monkeypatch.delenv(XLA_FLAGS, raising=False)
    startup.settle_libraries()
    assert XLA_FLAGS not in os.environ


def test_a_sum_over_nuclei_is_compiled_by_xla_itself() -> None:
    """The flag is known to this jaxlib, and does what it is for."""
    program = (
        "from vmcjob.run.startup import import_jax; import_jax()\n"
        "import jax, jax.numpy as jnp\n"
        "f = lambda x: jnp.sum(jnp.exp(x[:, :, None, None] * x[0]), axis=1)\n"
        "print(jax.jit(f).lower(jnp.ones((256, 4, 4))).compile().as_text().count('ynn_fusion'))"
    )
    seen = []
    for said in ({}, {XLA_FLAGS: f"{ONLY_PRODUCTS[0]}=LIBRARY_FUSION_TYPE_REDUCE"}):
        inherited = {name: value for name, value in os.environ.items() if name not in OURS}
        command = [sys.executable, "-c", program]
        environment = inherited | {"JAX_PLATFORMS": "cpu"} | said
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        seen.append(int(done.stdout))
    assert seen[0] == 0
    assert seen[1] > 0
