"""What devices say to one another in a step of training: how often, and how much at a time.

Programs are traced for more devices than there are.
"""

import math
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest

from tests.collectives import Collective, Tracing, of_compiled
from tests.matrix import rest
from tests.vmc.test_cuda import SPEC
from vmcjob.run.calculation import build
from vmcjob.spec import parse_spec
from vmcjob.vmc import devices
from vmcjob.vmc.contracts import LoopState
from vmcjob.vmc.gram import MIN_WALKERS
from vmcjob.vmc.layers import split_gradient
from vmcjob.vmc.phases import Calculation, Phase
from vmcjob.vmc.wavefunction import log_modulus

FLOAT, N_OWN, N_DEVICES, N_ELECTRONS = 4, 16, 4, 4  # bytes; walkers of a device; of LiH
NARROW = "layers = 1\none_electron_width = 8\ntwo_electron_width = 4"
WIDTH = 64
WIDE = f"layers = 2\none_electron_width = {WIDTH}\ntwo_electron_width = 4"
INPUT = WIDTH + 2 * 4  # of an electron, with the means of its pairs with electrons of either spin
MAX_KERNEL = 2 * WIDTH**2  # of the means of all electrons of either spin
"""Kernels of its second layer have more numbers than what goes in and comes back has."""


class Case(NamedTuple):
    """LiH, shared by so many devices."""

    optimizer: str
    network: str
    n_devices: int = N_DEVICES
    n_own: int = N_OWN


@cache
def calculation_of(optimizer: str, network: str, n_own: int) -> tuple[Calculation, LoopState]:
    """That of one device, as it begins."""
    text = SPEC.format(optimizer=optimizer, ansatz="ferminet", network=network)
    text = text.replace("walkers = 16", f"walkers = {n_own}")
    (point,) = parse_spec(text, "job.toml").points
    calculation = build(point.spec)
    return calculation, calculation.initial_state()


@cache
def said(case: Case) -> list[Collective]:
    """In a step of training."""
    calculation, state = calculation_of(case.optimizer, case.network, case.n_own)
    with patch.object(devices, "pmap", lambda fn, donate_argnums=(): Tracing(fn, case.n_devices)):
        found: Any = calculation.step_of(Phase.TRAIN)(state, jnp.asarray(0))[0]
    return found


def count_columns(case: Case) -> int:
    """Parameters that are in no kernel left as factors."""
    calculation, state = calculation_of(case.optimizer, case.network, case.n_own)
    params, r = jax.tree.map(lambda leaf: leaf[0], (state.params, state.chain.r))
    log_psi = log_modulus(calculation.vmc.psi, calculation.vmc.nuclei)
    kernels = split_gradient(log_psi, params, r[0]).kernels
    n_all = sum(leaf.size for leaf in jax.tree.leaves(params))
    return n_all - sum(math.prod(kernel.shape) for kernel in kernels)


def largest(case: Case, kind: str, *, in_loops: bool = False) -> int:
    sizes = [c.n_bytes for c in said(case) if c.kind == kind and c.is_in_loop is in_loops]
    return max(sizes, default=0)


@pytest.mark.parametrize("n_devices", [N_DEVICES, *rest(2)])
def test_spring_exchanges_the_scores_of_a_device_once_and_a_gram_matrix(n_devices: int) -> None:
    """A matrix of scores is dealt out by columns: (all walkers, columns / devices) on each.

    Were it gathered instead, every device would get so many times as much.
    """
    case = Case("spring", NARROW, n_devices)
    n_columns, n_all = count_columns(case), N_OWN * n_devices
    dealt = FLOAT * n_all * -(-n_columns // n_devices)
    assert [c.n_bytes for c in said(case) if c.kind == "all-to-all"] == [dealt]
    assert largest(case, "all-reduce") == FLOAT * max(n_all**2, n_columns)
    assert largest(case, "all-gather") < dealt


def test_wide_kernels_have_their_factors_gathered_and_not_their_scores() -> None:
    """Of all walkers, a row for every electron; or, as a sum, a kernel, or a Gram matrix."""
    case, n_all = Case("spring", WIDE), N_OWN * N_DEVICES
    scores_of_a_kernel = FLOAT * n_all * WIDTH**2
    assert largest(case, "all-gather") == FLOAT * n_all * N_ELECTRONS * INPUT
    assert largest(case, "all-gather") < scores_of_a_kernel / N_DEVICES
    assert largest(case, "all-reduce") <= FLOAT * max(n_all**2, MAX_KERNEL)


def test_gram_matrices_are_added_up_before_they_are_sent() -> None:
    """However many kernels there are: one of what is a matrix of scores, one of all kernels."""
    case = Case("spring", WIDE, n_own=24)  # no factor has the size of this matrix
    gram = FLOAT * (case.n_own * N_DEVICES) ** 2
    assert sum(c.n_bytes == gram for c in said(case)) == 2


@pytest.mark.parametrize("network", [NARROW, WIDE])
def test_a_round_of_conjugate_gradients_exchanges_vectors_only(network: str) -> None:
    """Of walkers, and of kernels that are left as factors: no matrix of walkers."""
    case = Case("spring", network)
    per_round = [c.n_bytes for c in said(case) if c.is_in_loop]
    assert 0 < max(per_round) <= FLOAT * max(N_OWN * N_DEVICES, MAX_KERNEL)
    assert largest(case, "all-to-all", in_loops=True) == 0


@pytest.mark.parametrize(
    "numbers",
    [(N_DEVICES, 32), (64, 128), pytest.param((64, 512), marks=pytest.mark.full_matrix)],
    ids=["whole", "part", "part of very many"],
)
def test_more_devices_are_not_spoken_to_more_often(numbers: tuple[int, int]) -> None:
    """With so few walkers that all of the Gram matrix is needed; where a part of it is tried."""
    assert (numbers[0] * N_OWN < MIN_WALKERS) is (numbers[1] * N_OWN < MIN_WALKERS)
    few, many = (said(Case("spring", NARROW, n)) for n in numbers)
    assert [(c.kind, c.is_in_loop) for c in few] == [(c.kind, c.is_in_loop) for c in many]


def test_what_kfac_sums_does_not_grow_with_the_walkers() -> None:
    """Factors of blocks and a gradient; SPRING's Gram matrix does."""
    few, many = (Case("kfac", NARROW, n_own=n) for n in (N_OWN, 4 * N_OWN))
    sums = [[c.n_bytes for c in said(case) if c.kind == "all-reduce"] for case in (few, many)]
    assert sums[0] == sums[1]
    assert largest(few, "all-to-all") == 0


COMPILED = """HloModule step

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %sum = f32[] add(%a, %b)
}

%inner (x: f32[6]) -> f32[6] {
  %x = f32[6]{0} parameter(0)
  ROOT %all-reduce.1 = f32[6]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
}

%body (x: f32[6]) -> f32[6] {
  %x = f32[6]{0} parameter(0)
  ROOT %call.1 = f32[6]{0} call(%x), to_apply=%inner
}

%goes_on (x: f32[6]) -> pred[] {
  %x = f32[6]{0} parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (x: f32[6]) -> f32[12] {
  %x = f32[6]{0} parameter(0)
  %while.1 = f32[6]{0} while(%x), condition=%goes_on, body=%body
  %both = (f32[6]{0}, s32[2,3]{1,0}) all-reduce-start(%while.1, %n), to_apply=%add
  ROOT %all-gather.1 = f32[12]{0} all-gather(%while.1), dimensions={0}
}
"""


def test_collectives_of_a_compiled_program_are_found_also_within_loops() -> None:
    assert sorted(of_compiled(COMPILED)) == [
        Collective("all-gather", 48, False),
        Collective("all-reduce", 24, True),
        Collective("all-reduce", 48, False),
    ]


def test_a_ring_sends_a_sum_twice_around_but_for_its_own_part() -> None:
    """Each of four devices passes on three quarters to be added, and three that are added."""
    assert Collective("all-reduce", 400, False).sent(4) == 600
    assert Collective("all-gather", 400, False).sent(4) == 300
