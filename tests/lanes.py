"""Which tests of the cluster go to which process of `pytest -n`."""

SECOND = ("failures", "life", "nodes", "preemption")  # as long as all other files together
NEEDS_IMAGE = ("container", "gpu_image")  # last: the image is built beside the other tests


def is_of_cluster(nodeid: str) -> bool:
    """Whether a test has jobs on a real SLURM."""
    return nodeid.startswith("tests/cluster/")


def lane_of(nodeid: str) -> int:
    """The lane of a test of the cluster, 1 or 2; 0 for all other tests."""
    if not is_of_cluster(nodeid):
        return 0
    return 2 if _subject(nodeid) in SECOND else 1


def place_of(nodeid: str) -> tuple[bool, int, bool]:
    """A key to sort tests: the lanes of the cluster go first, each with its image at the end."""
    return not is_of_cluster(nodeid), lane_of(nodeid), _subject(nodeid) in NEEDS_IMAGE


def _subject(nodeid: str) -> str:
    """The name of a test file, without `test_` and `.py`."""
    return nodeid.split("::")[0].rpartition("/")[2].removeprefix("test_").removesuffix(".py")
