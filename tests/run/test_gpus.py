"""Use of GPUs by a worker, with stand-ins for the driver's libraries behind real C calls."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from vmcjob.run.gpus import Cards, GpuUse

GB = 2**30
BUSES = {0: b"0000:65:00.0", 1: b"0000:17:00.0"}  # by CUDA's number; NVML counts otherwise
PERCENT = {b"0000:65:00.0": [80, 40], b"0000:17:00.0": [20, 60]}
INT, POINTER = ctypes.c_int, ctypes.c_void_p


@dataclass
class Device:
    """A device as JAX describes it."""

    platform: str
    local_hardware_id: int = 0
    stats: dict[str, int] | None = field(default_factory=lambda: {"peak_bytes_in_use": 3 * GB})

    def memory_stats(self) -> dict[str, int] | None:
        return self.stats


def write(address: int, kind: Any, *values: int) -> int:
    """Write numbers to an address, as a C function does; the code of success."""
    (kind * len(values)).from_address(address)[:] = values
    return 0


def make_libraries() -> tuple[SimpleNamespace, SimpleNamespace]:
    """Stand-ins of libcuda and NVML: C functions that ctypes calls with the types they have."""
    seen = {bus: iter(values) for bus, values in PERCENT.items()}
    handles = {1000 + n: bus for n, bus in enumerate(sorted(PERCENT))}
    by_bus = {bus: handle for handle, bus in handles.items()}

    def bus_id(text: int, size: int, device: int) -> int:
        assert size > len(BUSES[device])
        ctypes.memmove(text, BUSES[device] + b"\0", len(BUSES[device]) + 1)
        return 0

    def use(handle: int, address: int) -> int:
        return write(address, ctypes.c_uint, next(seen[handles[handle]]), 5)

    def memory(handle: int, address: int) -> int:
        del handle
        return write(address, ctypes.c_ulonglong, 80 * GB, 20 * GB, 60 * GB)

    def call(*types: Any) -> Any:
        return ctypes.CFUNCTYPE(INT, *types)

    cuda = SimpleNamespace(
        cuDeviceGet=call(POINTER, INT)(lambda address, n: write(address, INT, n)),
        cuDeviceGetPCIBusId=call(POINTER, INT, INT)(bus_id),
    )
    nvml = SimpleNamespace(
        nvmlInit_v2=call()(lambda: 0),
        nvmlDeviceGetHandleByPciBusId_v2=call(ctypes.c_char_p, POINTER)(
            lambda bus, address: write(address, ctypes.c_size_t, by_bus[bus])
        ),
        nvmlDeviceGetUtilizationRates=call(POINTER, POINTER)(use),
        nvmlDeviceGetMemoryInfo=call(POINTER, POINTER)(memory),
    )
    return cuda, nvml


def load(ordinals: Sequence[int]) -> Cards:
    return Cards(ordinals, *make_libraries())


def no_driver(ordinals: Sequence[int], error: type[Exception] = OSError) -> Cards:
    raise error(f"libcuda.so.1: cannot open shared object file, for {ordinals}")


def test_gpus_are_sampled_by_their_addresses_on_the_bus():
    """A card that only has the same number for CUDA and NVML is another card."""
    one = GpuUse()
    one.begin([Device("gpu", 1)], load)
    assert one.sample()
    assert one.spent() == {"gpus": 1, "gpu_busy": 0.2, "gpu_peak_mb": 3072, "gpu_mb": 81920}
    both = GpuUse()
    both.begin([Device("gpu", 0), Device("gpu", 1)], load)
    assert both.sample()
    assert both.sample()
    assert both.spent()["gpu_busy"] == pytest.approx((0.8 + 0.2 + 0.4 + 0.6) / 4)


def test_a_worker_without_a_gpu_loads_no_library_and_notes_nothing():
    use = GpuUse()
    use.begin([Device("cpu")], partial(pytest.fail, "a library was loaded"))
    assert use.spent() == {}
    assert not use.sample()


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_gpu_without_the_driver_s_libraries_is_counted_and_its_use_is_left_unknown(error):
    """A number that stands for "not known" would be read as an idle GPU."""
    use = GpuUse()
    use.begin([Device("gpu", stats=None)], partial(no_driver, error=error))
    assert use.spent() == {"gpus": 1}
