"""What is handed to devices and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from vmcjob.vmc import devices

SIGNALLING = np.array([0x7F800001], np.uint32).view(np.float32)  # a NaN that arithmetic would alter


def of_every_kind(x: Array) -> dict[str, Any]:
    """What a step may report."""
    return {
        "number": x,
        "more": (jnp.array([1.5, -0.0, jnp.inf]), None, jnp.zeros((2, 0, 3))),
        "count": jnp.arange(6).reshape(2, 3) - 3,
        "is_true": jnp.array([True, False]),
    }


@pytest.mark.parametrize("is_double", [False, True])
def test_what_is_packed_comes_back_bit_for_bit(is_double: bool) -> None:
    """As it would come back leaf by leaf."""
    number = np.array(np.pi, np.float64) if is_double else SIGNALLING[0]
    with jax.enable_x64(is_double):
        nothing = devices.replicate(jnp.zeros(()))
        packed = devices.pmap(lambda _, x: devices.pack(of_every_kind(x)))(nothing, number)
        plain = devices.pmap(lambda _, x: of_every_kind(x))(nothing, number)
        found, expected = devices.unreplicate((packed, plain))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert len(jax.tree.leaves(packed)) == 1
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        assert left.tobytes() == right.tobytes()
    assert found["number"].tobytes() == number.tobytes()


def test_what_steps_report_is_packed_and_read_in_one_go() -> None:
    """A list of them as well."""
    step = devices.pmap(lambda x, _: devices.pack((x, x > 1.0)))
    infos = [step(devices.replicate(jnp.asarray(float(k))), 0) for k in range(3)]
    assert devices.unreplicate(infos) == [(0.0, False), (1.0, False), (2.0, True)]
