"""Old checkpoints, whose Jastrow factors may have poles."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from vmcjob.errors import StoreError

ANSATZ_VERSION: Final = 2
"""Since 2, a store's attribute `ansatz_version`, only the size of a Jastrow factor's length counts,
not its sign. Stores without it are of version 1: there a factor of a negative length has a pole."""


def refuse_poles(arrays: Mapping[str, np.ndarray]) -> None:
    """StoreError if a checkpoint of version 1 has a Jastrow factor with a pole."""
    for name, values in arrays.items():
        if name.startswith("params/") and name.endswith("/alpha") and not np.all(values > 0):
            raise StoreError(
                f"checkpoint of a wave function with a pole: the Jastrow factor's length {name} is "
                f"{np.min(values):.3g} bohr, expected more than 0; begin anew: vmcjob rerun"
            )
