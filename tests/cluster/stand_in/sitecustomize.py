"""Workers of jobs calculate by the fake of tests/run/fake.py: they start in half the time.

Every Python process imports a module of this name when it starts, if its folder is in PYTHONPATH.
"""

import importlib.abc
import importlib.util
import sys
from types import ModuleType

REPLACED = "vmcjob.run.attempt"  # in this module the fake replaces the real calculation


class Replacement(importlib.abc.MetaPathFinder):
    """Install the fake as soon as a worker has imported its loop."""

    def find_spec(self, name, path, target=None):
        """Where the module lies, with a loader that installs the fake after loading."""
        if name != REPLACED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            from tests.run import fake

            fake.install()

        spec.loader.exec_module = load_and_replace
        return spec


if "vmcjob" in sys.orig_argv:
    sys.meta_path.insert(0, Replacement())
