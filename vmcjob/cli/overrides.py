"""Options that change a spec before it is read: --set, --sweep and --seeds."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from vmcjob.cli.complete import complete_changes

if TYPE_CHECKING:
    from vmcjob.spec import Overrides

Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Another value of a key, like sampler.walkers=1024; may be given again.",
        autocompletion=complete_changes,
    ),
]
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=A,B,C",
        help="One run for each value of a variable or key, like R=1.0,1.4; may be given again.",
        autocompletion=complete_changes,
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, max=10_000, metavar="N", help="N runs that differ by seed."),
]


@dataclass(frozen=True)
class SpecChanges:
    """The changes of all specs of a command."""

    values: Values = None
    axes: Axes = None
    n_seeds: Seeds = None

    def overrides(self) -> "Overrides":
        """The changes as the reader of specs takes them."""
        from vmcjob.spec import Overrides

        return Overrides(self.values or (), self.axes or (), self.n_seeds)
