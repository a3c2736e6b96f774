"""Ragged exchanges, which the plugin itself has no code for: rows go to experts on other devices and come back, compared
with NumPy. Lists that do not fit fail by name on all devices, and the next program runs.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from corpus.meshes import grid, mapped, permuted, place, ring, values
from corpus.refused import refused

WIDTH = 5


def before(counts, axis: int):
    """How many rows come before those of each entry, along the axis."""
    return counts.cumsum(axis) - counts


def to_experts_and_back(mesh: Mesh, axis: str, seed: int) -> None:
    """Members of a group (those that differ in `axis` only) send each other random numbers of rows."""
    size = mesh.shape[axis]
    groups = 8 // size
    counts = np.random.default_rng(seed).integers(0, 7, (groups, size, size), np.int32)  # from, to
    counts[:, 1, :] = 0  # one has nothing to send
    most = int(max(counts.sum(1).max(), counts.sum(2).max()))
    rows = values(groups, size, most, WIDTH, seed=seed)
    spec = P(*[name for name in mesh.axis_names if name != axis], axis)

    @mapped(mesh, (spec, spec, P()), (spec, spec))
    def f(x, counts, all_counts):
        x, sent = x.reshape(most, WIDTH), counts.reshape(size)
        me = jax.lax.axis_index(axis)
        if len(mesh.axis_names) > 1:
            all_counts = all_counts[jax.lax.axis_index(mesh.axis_names[0])]
        all_counts = all_counts.reshape(size, size)
        got = all_counts[:, me]
        there = jax.lax.ragged_all_to_all(
            *(x, jnp.full_like(x, -1), before(sent, 0), sent),
            *(before(all_counts, 0)[me], got),
            axis_name=axis,
        )
        done = there * (me + 1)
        back = jax.lax.ragged_all_to_all(
            *(done, jnp.zeros_like(x), before(got, 0), got),
            *(before(all_counts, 1)[:, me], sent),
            axis_name=axis,
        )
        shape = (1,) * len(mesh.axis_names)
        return there.reshape(*shape, most, WIDTH), back.reshape(*shape, most, WIDTH)

    shape = (groups, size) if groups > 1 else (size,)
    there, back = f(
        place(mesh, rows.reshape(*shape, most, WIDTH), *spec),
        place(mesh, counts.reshape(*shape, size), *spec),
        counts if groups > 1 else counts[0],
    )
    expected_there, expected_back = np.full_like(rows, -1), np.zeros_like(rows)
    for group, source, target in np.ndindex(groups, size, size):
        count = counts[group, source, target]
        begin = before(counts[group], 1)[source, target]
        into = before(counts[group], 0)[source, target]
        sent = rows[group, source, begin : begin + count]
        expected_there[group, target, into : into + count] = sent
        expected_back[group, source, begin : begin + count] = sent * np.float32(target + 1)
    np.testing.assert_array_equal(np.asarray(there).reshape(rows.shape), expected_there)
    np.testing.assert_array_equal(np.asarray(back).reshape(rows.shape), expected_back)


def check_experts_on_all_devices():
    for seed in range(3):
        to_experts_and_back(ring(), "i", seed)


def check_experts_of_two_groups():
    to_experts_and_back(grid(a=2, b=4), "b", 3)
    to_experts_and_back(permuted(a=2, b=4), "b", 4)


def check_lists_that_do_not_fit():
    mesh = ring()

    def exchange(name: str, first: int):
        """Each device sends a row to each; the first entry of a list of device 3 is another one."""

        @mapped(mesh, P("i"), P("i"))
        def f(x):
            me = jax.lax.axis_index("i")
            lists = {
                "begin": jnp.arange(8, dtype=jnp.int32),
                "count": jnp.ones(8, jnp.int32),
                "into": jnp.full(8, me, jnp.int32),
                "expected": jnp.ones(8, jnp.int32),
            }
            lists[name] = lists[name].at[0].set(jnp.where(me == 3, first, lists[name][0]))
            return jax.lax.ragged_all_to_all(x, jnp.zeros_like(x), *lists.values(), axis_name="i")

        return lambda: f(place(mesh, values(64, 3), "i"))

    whole = np.asarray(exchange("count", 1)())
    expected = values(64, 3).reshape(8, 8, 3).transpose(1, 0, 2).reshape(64, 3)
    np.testing.assert_array_equal(whole, expected)
    refused(exchange("begin", 8), "position 3 sends 1 rows from row 8 on to position 0, and has 8")
    refused(exchange("count", -1), "position 3 sends -1 rows")
    refused(exchange("count", 2**31 - 1), "position 3 sends 2147483647 rows")
    refused(exchange("into", -5), "to row -5 of position 0, whose result has 8")
    refused(exchange("expected", 3), "position 0 sends 1 rows to position 3, which expects 3")
