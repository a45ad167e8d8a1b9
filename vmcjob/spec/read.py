"""Read the text of a spec and expand it to validated jobs: all points of the sweep, all seeds."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmcjob.document import Complaint, Document, Reader, format_value
from vmcjob.errors import SpecError
from vmcjob.spec.geometry import Geometries
from vmcjob.spec.model import JobSpec
from vmcjob.spec.origin import Origins, origins_in
from vmcjob.spec.override import NONE, Overrides
from vmcjob.spec.point import PointReader
from vmcjob.spec.relax import Relax, why_not_relaxed
from vmcjob.spec.science import science
from vmcjob.spec.sweep import Swept, Variations, read_variations


@dataclass(frozen=True)
class Point:
    """One job of a spec file, with its coordinates in the sweep."""

    coordinates: Mapping[str, Swept]
    spec: JobSpec
    previous: Mapping[str, Swept] | None = None
    """The earlier point whose run with the same seed this one starts from."""
    origins: Origins = field(default_factory=dict, compare=False)
    """The line or flag that gave each value that is not a default."""


@dataclass(frozen=True)
class SpecFile:
    """An expanded spec file; the first axis of the sweep is the slowest, seeds are the fastest."""

    source: str
    name: str
    points: tuple[Point, ...]
    relax: Relax | None = None


def read_spec(path: Path | str, overrides: Overrides = NONE) -> SpecFile:
    """Read a spec file; SpecError with all mistakes, NotFoundError if there is no file."""
    return _expand(overrides.apply(Document.read(Path(path))), Path(path).parent)


def parse_spec(text: str, source: str, folder: Path = Path()) -> SpecFile:
    """Read the text of a spec; complaints name it `source`, paths in it begin at `folder`."""
    return _expand(Document.parse(text, source), folder)


def load_resolved(text: str, source: str) -> JobSpec:
    """Read the single job that `dump_spec` wrote."""
    points = parse_spec(text, source).points
    if len(points) != 1:
        raise SpecError([f"{source}: expected one job, got {len(points)}"])
    return points[0].spec


def _expand(document: Document, folder: Path) -> SpecFile:
    reader = Reader(document, JobSpec, Variations)
    variations = read_variations(reader)
    geometries, given = Geometries(folder), origins_in(document)
    readers = [
        PointReader(document, variations.sweep, coordinates, geometries, given)
        for coordinates in variations.sweep.points()
    ]
    results = [point.read() for point in readers]
    reader.complaints += _merge(readers)
    specs = [reader.finish(result) for result in results]
    jobs = [(point.coordinates, spec) for point, spec in zip(readers, specs, strict=True)]
    _complain_of_same_science(reader, jobs)
    points = tuple(
        Point(
            point.coordinates,
            _with_seed(spec, seed, len(variations.seeds)),
            point.previous,
            point.origins,
        )
        for point, spec in zip(readers, specs, strict=True)
        for seed in variations.seeds or (spec.seed,)
    )
    if variations.relax is not None:
        _complain_of_relaxation(reader, variations.relax, [point.spec for point in points])
    return reader.finish(SpecFile(document.source, specs[0].name, points, variations.relax))


def _complain_of_relaxation(reader: Reader, relax: Relax, specs: list[JobSpec]) -> None:
    """Complain about a relaxation that the jobs cannot have."""
    for key, words in why_not_relaxed(relax, specs):
        path = ("relax",) if key is None else ("relax", key)
        reader.complain(path, words, at_key=key is None)


def _with_seed(spec: JobSpec, seed: int, n_seeds: int) -> JobSpec:
    """The job of one seed; with a pooled target, n seeds may each have √n times the error."""
    evaluate = spec.evaluate
    if evaluate.target_of == "pool" and evaluate.target_error is not None:
        error = evaluate.target_error * math.sqrt(max(1, n_seeds))
        evaluate = dataclasses.replace(evaluate, target_error=error, target_of="run")
    return dataclasses.replace(spec, seed=seed, evaluate=evaluate)


def _merge(readers: Sequence[PointReader]) -> Iterator[Complaint]:
    """The complaints of all points; a complaint about some points names the first of them."""
    counts = Counter(complaint for reader in readers for complaint in set(reader.complaints))
    first = {c: reader for reader in reversed(readers) for c in reader.complaints}
    for complaint, reader in first.items():
        is_everywhere = counts[complaint] == len(readers)
        if is_everywhere or complaint.is_rendered or complaint.offset in reader.swept_offsets:
            yield complaint
        else:
            message = f"{complaint.message} (at {_format_point(reader.coordinates)})"
            yield dataclasses.replace(complaint, message=message)


def _complain_of_same_science(
    reader: Reader, jobs: list[tuple[Mapping[str, Swept], JobSpec]]
) -> None:
    """Complain about two points with the same science, because they would share a run."""
    seen: dict[str, Mapping[str, Swept]] = {}
    for coordinates, spec in jobs:
        earlier = seen.setdefault(science(spec), coordinates)
        if earlier is not coordinates:
            points = f"{_format_point(earlier)} and {_format_point(coordinates)}"
            reader.complain(("sweep",), f"{points} are one and the same job", at_key=True)


def _format_point(coordinates: Mapping[str, Swept]) -> str:
    return ", ".join(f"{name} = {format_value(value)}" for name, value in coordinates.items())
