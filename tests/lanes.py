"""The order of test files, and which tests of the cluster go to which process of `pytest -n`."""

SECOND = ("failures", "life", "nodes", "preemption")  # as long as all other files together
NEEDS_IMAGE = ("container", "gpu_image")  # last: the image is built beside the other tests
LONGEST = ("run/test_ranks", "run/test_programs", "run/test_target", "run/test_observables")
LONGEST += ("fwdlap/test_primitives", "fwdlap/test_composites", "vmc/test_ansatz")
LONGEST += ("store/test_crashes", "vmc/test_sr", "vmc/test_optimizers_conformance")
"""Files that take a minute or more: early, so that no process waits for another in the end."""


def is_of_cluster(nodeid: str) -> bool:
    """Whether a test has jobs on a real SLURM."""
    return nodeid.startswith("tests/cluster/")


def lane_of(nodeid: str) -> int:
    """The lane of a test of the cluster, 1 or 2; 0 for all other tests."""
    if not is_of_cluster(nodeid):
        return 0
    return 2 if _subject(nodeid) in SECOND else 1


def place_of(nodeid: str) -> tuple[bool, int, bool, bool]:
    """A key to sort tests: first the lanes of the cluster, each with its image at the end.

    The longest files follow, and then all others.
    """
    is_long = nodeid.split("::")[0].removeprefix("tests/").removesuffix(".py") in LONGEST
    is_last = _subject(nodeid) in NEEDS_IMAGE
    return not is_of_cluster(nodeid), lane_of(nodeid), is_last, not is_long


def _subject(nodeid: str) -> str:
    """The name of a test file, without `test_` and `.py`."""
    return nodeid.split("::")[0].rpartition("/")[2].removeprefix("test_").removesuffix(".py")
