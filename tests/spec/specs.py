"""Random jobs for property tests."""

from hypothesis import strategies as st

from vmcjob.spec import (
    Adam,
    Atom,
    Container,
    Evaluate,
    FermiNet,
    JobSpec,
    Kfac,
    Lamb,
    MinSr,
    Numerics,
    Output,
    Psiformer,
    Resources,
    Sampler,
    SlaterJastrow,
    Spring,
    Sr,
    System,
    Train,
)

counts = st.integers(1, 1000)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@st.composite
def systems(draw: st.DrawFn) -> System:
    """Molecules on a line with gaps of a hundredth of a bohr or more, at any possible spin."""
    symbols = draw(st.lists(st.sampled_from(["H", "He", "Li", "C", "Og"]), min_size=1, max_size=4))
    gaps = st.floats(0.01, 1e3)
    z = 0.0
    atoms = []
    for symbol in symbols:
        z += draw(gaps)
        x, y = draw(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)))
        atoms.append(Atom(symbol, (x + 0.0, y + 0.0, z)))
    n_protons = sum(System(tuple(atoms)).charges)
    n_electrons = draw(st.integers(1, n_protons + 3))
    spin = draw(st.integers(0, n_electrons // 2)) * 2 + n_electrons % 2
    return System(
        atoms=tuple(atoms),
        charge=n_protons - n_electrons,
        spin=min(spin, n_electrons),
        # A spec has no -0.0: reading makes 0.0 of it.
        reference=draw(st.none() | finite.map(lambda x: x + 0.0)),
    )


resources = st.builds(
    Resources,
    nodes=counts,
    gpus=st.integers(0, 8),
    cpus=st.none() | counts,
    time=st.none() | st.sampled_from(["00:00:01", "2-00:00:00", "999:59:59"]),
    mem=st.none() | st.sampled_from(["1G", "16GB", "512MB", "2TB"]),
)

jobs = st.builds(
    JobSpec,
    name=st.from_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    seed=st.integers(0, 2**32 - 1),
    system=systems(),
    ansatz=st.one_of(
        st.builds(FermiNet, determinants=counts, layers=counts, jastrow=st.booleans()),
        st.builds(Psiformer, heads=counts, mlp_width=counts, layer_norm=st.booleans()),
        st.builds(SlaterJastrow, determinants=counts, functions=st.integers(1, 10)),
    ),
    sampler=st.builds(
        Sampler,
        walkers=st.integers(2, 10**5),
        steps=counts,
        width=positive,
        target_acceptance=st.floats(0, 1, exclude_min=True, exclude_max=True),
    ),
    optimizer=st.one_of(
        [
            st.builds(kind, learning_rate=positive, decay_steps=positive, damping=positive)
            for kind in (Sr, MinSr, Spring, Kfac)
        ]
        + [st.builds(Kfac, damping=st.floats(1e-6, 1.0), damping_adaptation_period=counts)]
        + [
            st.builds(kind, learning_rate=positive, decay_steps=positive, b1=st.floats(0, 0.999))
            for kind in (Adam, Lamb)
        ]
    ),
    train=st.builds(Train, steps=st.integers(1, 10**7)),
    evaluate=st.builds(Evaluate, steps=st.integers(0, 10), warmup=st.integers(0, 10)),
    numerics=st.builds(
        Numerics,
        dtype=st.sampled_from(["float32", "float64"]),
        matmul_precision=st.sampled_from(["highest", "high", "default"]),
    ),
    output=st.builds(Output, flush_seconds=positive, snapshots=st.integers(0, 1000)),
    resources=resources,
    container=st.builds(
        Container, image=st.none() | st.from_regex(r"[^\x00-\x1f\x7f]+", fullmatch=True)
    ),
).filter(lambda job: not [*job.clashes()])  # some are too large for any memory
