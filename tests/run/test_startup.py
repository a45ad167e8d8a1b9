"""What is settled before JAX starts."""

import os
import subprocess
import sys

import pytest

from vmcjob.run.startup import MIN_THREADS

PROGRAM = (
    "import os; from vmcjob.run.startup import import_jax; import_jax(); print(os.environ[{!r}])"
)
OURS = "NPROC", "OPENBLAS_NUM_THREADS"


def threads(of: str = "NPROC", **variables: str) -> int:
    """The size of XLA's pool, or another library's, in a process with these variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(of)],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return int(done.stdout)


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
