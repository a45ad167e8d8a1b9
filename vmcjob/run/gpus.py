"""The GPUs of this worker: how busy they are, and how much of their memory was used.

The driver's libraries are asked through ctypes, from a thread. A worker without a GPU loads none of
them and starts no thread.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

log = logging.getLogger("vmcjob")
SAMPLE_S = 10.0
"""NVML averages the use of a GPU over up to a second, so a sample costs nothing and an hour of them
gives a mean with an error of a few percent."""
MB = 2**20
BUS_ID_BYTES = 32
INT, POINTER, TEXT = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p


class Device(Protocol):
    """A device as JAX describes it."""

    platform: str
    local_hardware_id: int

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes that this process has had on the device; None if they are not counted."""
        ...


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of the time in which a kernel ran, and memory was moved."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Cards:
    """The graphics cards behind some devices of CUDA, as NVML knows them.

    CUDA numbers the devices that the process may use; NVML numbers all of the machine. The address
    on the PCI bus names the same card for both.
    """

    def __init__(self, ordinals: Sequence[int], cuda: Any, nvml: Any) -> None:  # C libraries
        """Find the cards; OSError if a library cannot do so."""
        self._nvml = nvml
        _require(nvml.nvmlInit_v2(), "nvmlInit")
        self._handles = [self._find(cuda, ordinal) for ordinal in ordinals]

    def _find(self, cuda: Any, ordinal: int) -> ctypes.c_void_p:  # a C library
        device, bus_id, handle = INT(), ctypes.create_string_buffer(BUS_ID_BYTES), POINTER()
        _require(cuda.cuDeviceGet(ctypes.byref(device), INT(ordinal)), "cuDeviceGet")
        code = cuda.cuDeviceGetPCIBusId(bus_id, INT(BUS_ID_BYTES), device)
        _require(code, "cuDeviceGetPCIBusId")
        found = self._nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(handle))
        _require(found, "nvmlDeviceGetHandleByPciBusId")
        return handle

    def busy(self) -> float:
        """The share of the last moment in which the cards computed, on average; OSError."""
        use, shares = _Utilization(), []
        for handle in self._handles:
            code = self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
            _require(code, "nvmlDeviceGetUtilizationRates")
            shares.append(use.gpu / 100)
        return sum(shares) / len(shares)

    def memory_mb(self) -> float:
        """The memory of the smallest card; OSError."""
        memory, sizes = _Memory(), []
        for handle in self._handles:
            code = self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
            _require(code, "nvmlDeviceGetMemoryInfo")
            sizes.append(memory.total / MB)
        return min(sizes)


def _require(code: int, function: str) -> None:
    if code:
        raise OSError(f"{function} returned {code}")


def load_cards(ordinals: Sequence[int]) -> Cards:
    """The cards, by the libraries of the driver of this machine; OSError without them."""
    cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
    for function in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetMemoryInfo):
        function.argtypes = [POINTER, POINTER]
    nvml.nvmlDeviceGetHandleByPciBusId_v2.argtypes = [TEXT, POINTER]
    return Cards(ordinals, cuda, nvml)


@dataclass
class GpuUse:
    """The use of the GPUs of this process since `begin`."""

    _devices: Sequence[Device] = ()
    _cards: Cards | None = None
    _samples: list[float] = field(default_factory=list)

    def begin(self, devices: Sequence[Device], load: Any = load_cards) -> None:  # see load_cards
        """Find the GPUs among the devices; no effect without GPUs."""
        gpus = [device for device in devices if device.platform in ("gpu", "cuda")]
        if not gpus or self._devices:
            return
        self._devices = gpus
        try:
            self._cards = load([device.local_hardware_id for device in gpus])
        except (OSError, AttributeError) as error:  # no NVIDIA driver, or an old one
            log.info("how busy the GPU is cannot be sampled: %s", error)

    @property
    def is_known(self) -> bool:
        """Whether the driver tells how busy the GPUs are."""
        return self._cards is not None

    def sample(self) -> bool:
        """Note how busy the GPUs are; whether this could be found out."""
        if self._cards is None:
            return False
        try:
            self._samples.append(self._cards.busy())
        except OSError as error:
            log.info("how busy the GPU is is not sampled any more: %s", error)
            return False
        return True

    def spent(self) -> dict[str, float]:
        """GPUs, mean share of time in which they computed, peak and size of memory per GPU in MB.

        What is not known is left out. The share counts all processes on the GPU, the memory only
        this one.
        """
        if not self._devices:
            return {}
        found: dict[str, float] = {"gpus": float(len(self._devices))}
        if self._samples:
            found["gpu_busy"] = sum(self._samples) / len(self._samples)
        with suppress(Exception):  # after an error on the device, JAX may not answer
            stats = [device.memory_stats() or {} for device in self._devices]
            found["gpu_peak_mb"] = max(one["peak_bytes_in_use"] for one in stats) / MB
        if self._cards is not None:
            with suppress(OSError):
                found["gpu_mb"] = self._cards.memory_mb()
        return found


OWN = GpuUse()
"""The use of the GPUs of this process, which has one account as it has one processor time."""


def watch(devices: Sequence[Device]) -> None:
    """Sample the GPUs among the devices until the process ends; no effect without GPUs."""
    OWN.begin(devices)
    if OWN.is_known:
        threading.Thread(target=_sample, name="gpus", daemon=True).start()


def _sample() -> None:
    while OWN.sample():
        time.sleep(SAMPLE_S)
