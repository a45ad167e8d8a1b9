"""The checkout that an image is built from: a named one, this directory, or the package itself."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

PACKAGE: Final = Path(__file__).parents[1]
SHIPPED: Final = PACKAGE / "shipped"
"""The files of a checkout beside the package; a wheel has them, a checkout does not."""
SCRIPT: Final = Path("containers", "build")
PROGRAMS: Final = (SCRIPT, Path("containers", "selftest"))


@contextmanager
def find_checkout(named: Path | None, shipped: Path = SHIPPED) -> Iterator[Path]:
    """A checkout to build from; one that is put together from a wheel is removed at the end."""
    here = named or Path()
    if named is not None or (here / SCRIPT).is_file() or not shipped.is_dir():
        yield here
        return
    with TemporaryDirectory(prefix="vmcjob-checkout-") as folder:
        made = Path(folder)
        shutil.copytree(shipped, made, dirs_exist_ok=True)
        left_out = shutil.ignore_patterns("__pycache__", SHIPPED.name)
        shutil.copytree(PACKAGE, made / PACKAGE.name, ignore=left_out)
        for program in PROGRAMS:
            (made / program).chmod(0o755)
        yield made
