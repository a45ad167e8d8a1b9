"""Settings of the forward-Laplacian tests: they compare in float64."""

from collections.abc import Iterator

import jax
import pytest
from hypothesis import settings

# `--hypothesis-profile=thorough` searches for hours what the default samples in seconds.
settings.register_profile("default", max_examples=12, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=3000, deadline=None)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Oracle comparisons need float64; the setting is put back for the tests of other rooms."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
