"""`vmcjob.vmc` by itself: what README shows, and what is public."""

import re
from pathlib import Path

import pytest

from vmcjob import vmc

README = Path(__file__).parents[2] / "README.md"
EXACT = -1.1745  # hartree
MAX_LINES = 20


@pytest.mark.slow
def test_the_notebook_of_the_readme_finds_the_energy_of_h2() -> None:
    """In twenty lines, within 3 mHa, and without jobs, specs and stores."""
    found = re.search(
        r"<!-- library -->\n```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL
    )
    assert found
    code = found[1]
    assert len(code.splitlines()) <= MAX_LINES
    assert re.findall(r"^(?:from|import) .*", code, re.MULTILINE) == ["from vmcjob import vmc"]
    names = {}
    exec(code, names)
    energies = names["energies"]
    assert sum(energies) / len(energies) == pytest.approx(EXACT, abs=3e-3)


def test_what_is_public_is_documented() -> None:
    """Each class and function says what it is; aliases of types do so where they are defined."""
    for name in vmc.__all__:
        public = getattr(vmc, name)
        assert public.__doc__ or name in {"LogPsi", "SignedWaveFunction"}, name


def test_a_name_that_is_no_phase_is_refused() -> None:
    """Before anything is computed; a slip of the pen would leave a phase out."""
    with pytest.raises(ValueError, match=r"evalute.*no phases; there are pretrain, warmup, train"):
        next(vmc.run(None, {"evalute": 1}))  # pyright: ignore[reportArgumentType]
