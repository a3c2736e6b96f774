"""NetKet: ground states of spin chains by variational Monte Carlo, with chains and samples over a mesh. One's
solver factorizes a matrix of samples; the other's states obey a rule that a function on the host checks.
"""

import jax
import netket as nk
import numpy as np
from netket.utils import struct

SITES, CHAINS, SAMPLES = 8, 32, 256
jax.set_mesh(jax.make_mesh((8,), ("S",), axis_types=(jax.sharding.AxisType.Auto,)))


class EvenUps(nk.hilbert.constraint.DiscreteHilbertConstraint):
    """An even number of spins that are up, which Python counts."""

    asked: list[int] = struct.field(pytree_node=False)

    def __init__(self) -> None:
        self.asked = []

    def __call__(self, x):
        shape = jax.ShapeDtypeStruct(x.shape[:-1], bool)
        return jax.pure_callback(self.count, shape, x, vmap_method="expand_dims")

    def count(self, x):
        self.asked.append(x.size)
        return (np.asarray(x) > 0).sum(-1) % 2 == 0

    def __hash__(self):
        return hash(EvenUps)

    def __eq__(self, other):
        return isinstance(other, EvenUps)


def energies(operator, sampler, driver, **options):
    state = nk.vqs.MCState(
        sampler,
        nk.models.RBM(alpha=1, param_dtype=float),
        n_samples=SAMPLES,
        n_discard_per_chain=4,
        seed=1,
        sampler_seed=2,
    )
    assert state.samples.sharding.spec == jax.P("S"), state.samples.sharding
    log = nk.logging.RuntimeLog()
    steps = driver(operator, nk.optimizer.Sgd(0.05), variational_state=state, **options)
    steps.run(4, out=log, show_progress=False)
    return {
        "energies": np.asarray(log.data["Energy"]["Mean"]),
        "parameters": jax.tree.map(np.asarray, state.parameters),
        "samples": np.asarray(state.samples),
    }


chain = nk.graph.Chain(SITES)
spins = nk.hilbert.Spin(0.5, SITES, total_sz=0)
heisenberg = nk.operator.Heisenberg(spins, chain).to_jax_operator()
exchange = nk.sampler.MetropolisExchange(spins, graph=chain, n_chains=CHAINS)
by_samples = energies(heisenberg, exchange, nk.driver.VMC_SR, diag_shift=0.01)

even = EvenUps()
constrained = nk.hilbert.Spin(0.5, SITES, constraint=even)
ising = nk.operator.Ising(constrained, chain, h=1.0, dtype=float)
pairs = nk.sampler.MetropolisExchange(constrained, graph=chain, n_chains=CHAINS)
shift = nk.optimizer.SR(diag_shift=0.01)
by_rule = energies(ising, pairs, nk.driver.VMC, preconditioner=shift)
assert even.asked, "the host was not asked"
