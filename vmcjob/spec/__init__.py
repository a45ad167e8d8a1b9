"""The job spec: TOML to frozen, validated jobs, with all mistakes reported at once."""

from vmcjob.document import write
from vmcjob.spec.ansatz import Ansatz, FermiNet, Psiformer, SlaterJastrow
from vmcjob.spec.basis import by_element
from vmcjob.spec.budget import Budget
from vmcjob.spec.evaluate import MAX_STEPS
from vmcjob.spec.formula import composition, describe_systems
from vmcjob.spec.model import (
    Container,
    Evaluate,
    JobSpec,
    Numerics,
    Output,
    Resources,
    Sampler,
    Train,
)
from vmcjob.spec.optimizer import Adam, Kfac, Lamb, MinSr, Optimizer, Spring, Sr
from vmcjob.spec.override import Overrides
from vmcjob.spec.plausible import doubts_about
from vmcjob.spec.potential import Potential
from vmcjob.spec.read import Point, SpecFile, load_resolved, parse_spec, read_spec
from vmcjob.spec.relax import Relax
from vmcjob.spec.schema import spec_schema
from vmcjob.spec.science import beside_science, science, science_keys, science_sha256
from vmcjob.spec.size import Size, format_bytes, measure
from vmcjob.spec.start import why_no_start
from vmcjob.spec.starter import starter
from vmcjob.spec.sweep import Variations
from vmcjob.spec.system import BOHR_PER_ANGSTROM, Atom, System


def dump_spec(spec: JobSpec) -> str:
    """The canonical TOML of one job with every key; `load_resolved` reads it back exactly."""
    return write(spec)


__all__ = [
    "BOHR_PER_ANGSTROM",
    "MAX_STEPS",
    "Adam",
    "Ansatz",
    "Atom",
    "Budget",
    "Container",
    "Evaluate",
    "FermiNet",
    "JobSpec",
    "Kfac",
    "Lamb",
    "MinSr",
    "Numerics",
    "Optimizer",
    "Output",
    "Overrides",
    "Point",
    "Potential",
    "Psiformer",
    "Relax",
    "Resources",
    "Sampler",
    "Size",
    "SlaterJastrow",
    "SpecFile",
    "Spring",
    "Sr",
    "System",
    "Train",
    "Variations",
    "beside_science",
    "by_element",
    "composition",
    "describe_systems",
    "doubts_about",
    "dump_spec",
    "format_bytes",
    "load_resolved",
    "measure",
    "parse_spec",
    "read_spec",
    "science",
    "science_keys",
    "science_sha256",
    "spec_schema",
    "starter",
    "why_no_start",
]
