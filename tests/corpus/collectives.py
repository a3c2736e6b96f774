"""Each collective with each form of groups, mode, reduction and element type, against NumPy. Operands are small whole
numbers, whose sums and products every type holds exactly (or wraps around, as NumPy's), so results are equal bit by
bit. JAX_ENABLE_X64 is needed.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from corpus.by_hand import COLUMNS, ROWS, Program
from corpus.meshes import grid, mapped, permuted, place

# Form: replicas, partitions, mode, groups of ids, and the groups of positions that they mean.
ALL = [list(range(8))]
FORMS: dict[str, tuple[int, int, str, list[list[int]], list[list[int]]]] = {
    "replicas-empty": (8, 1, "replicas", [], ALL),
    "replicas-halves": (
        8,
        1,
        "replicas",
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    "replicas-crossed": (
        8,
        1,
        "replicas",
        [[7, 0], [1, 6], [5, 2], [3, 4]],
        [[7, 0], [1, 6], [5, 2], [3, 4]],
    ),
    "flattened-all": (1, 8, "flattened", [[3, 1, 4, 0, 5, 7, 2, 6]], [[3, 1, 4, 0, 5, 7, 2, 6]]),
    "flattened-strided": (
        1,
        8,
        "flattened",
        [[0, 2, 4, 6], [1, 3, 5, 7]],
        [[0, 2, 4, 6], [1, 3, 5, 7]],
    ),
    "flattened-of-both": (
        2,
        4,
        "flattened",
        [[0, 5], [4, 1], [2, 7], [6, 3]],
        [[0, 5], [4, 1], [2, 7], [6, 3]],
    ),
    "replicas-of-both": (2, 4, "replicas", [[1, 0]], [[4, 0], [5, 1], [6, 2], [7, 3]]),
    "replicas-of-four": (4, 2, "replicas", [[0, 3], [2, 1]], [[0, 6], [1, 7], [4, 2], [5, 3]]),
    "mixed-alone": (2, 4, "mixed", [[0], [1]], [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "mixed-empty": (2, 4, "mixed", [], ALL),
    "partitions-pairs": (2, 4, "partitions", [[0, 3], [2, 1]], [[0, 3], [2, 1], [4, 7], [6, 5]]),
    "singles": (1, 8, "flattened", [[i] for i in range(8)], [[i] for i in range(8)]),
}
FUNCTIONS = {
    "add": np.add,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}
PERMUTED = [6, 3, 0, 5, 2, 7, 4, 1]
ORDERS = (list(range(8)), PERMUTED)


# Of a large operand, in bytes: reduced in parts, or sent in three messages, the last of which is not full.
SIZES = {"in-parts": 24 << 10, "in-messages": 600 << 10}


def rows_of(dtype: str, size: str) -> int:
    """Of an array a little larger than this size, or a small one; a multiple of all sizes of groups."""
    if not size:
        return ROWS
    return SIZES[size] // (jnp.dtype(dtype).itemsize * COLUMNS) + 8


def operands(dtype: str, rows: int = ROWS) -> np.ndarray:
    draw = np.random.default_rng(0).integers
    shape = (8, rows, COLUMNS)
    if dtype == "bool":
        return draw(0, 8, shape) > 0  # mostly true, so that neither "and" nor "or" is constant
    if dtype.startswith("u"):
        return draw(0, 4, shape).astype(dtype)
    if dtype.startswith("complex"):  # products are powers of two, times one, i or 1 + i
        units = np.array([1, -1, 1j, -1j, 1 + 1j, 1 - 1j])
        return units[draw(0, 6, shape)].astype(dtype)
    signed = draw(1, 3, shape) * (1 - 2 * draw(0, 2, shape))
    return signed.astype(getattr(jnp, dtype))


def functions(dtype: str) -> list[str]:
    """The reductions of a type. XLA's CPU compiler has "and" and "or" of truth values only."""
    if dtype == "bool":
        return ["and", "or", "minimum", "maximum"]
    return list(FUNCTIONS)[: 2 if dtype.startswith("complex") else 4]


def reduced(function: str, arrays: list[np.ndarray]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return functools.reduce(FUNCTIONS[function], arrays).astype(arrays[0].dtype)


def same(found, expected) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    if found.tobytes() != expected.tobytes():
        raise AssertionError(f"found\n{found}\nexpected\n{expected}")


def can_exchange(form: str) -> bool:
    """Whether exchanges and broadcasts can have it: their groups are of replicas or of partitions, not of both. With
    empty groups, the parser in jaxlib divides by zero when it reads an exchange.
    """
    replicas, _, mode, groups, _ = FORMS[form]
    return bool(groups) and (mode in ("replicas", "partitions") or replicas == 1)


def check_form(dtype: str, form: str, size: str = "") -> None:
    """With a size, operands are arguments of the program, which travel in messages, and then what it has computed, which
    other workers read in the heap.
    """
    replicas, partitions, mode, groups, positions = FORMS[form]
    rows = rows_of(dtype, size)
    members, x = len(positions[0]), operands(dtype, rows)
    programs = [
        Program(dtype, replicas, partitions, mode, groups, rows, computed)
        for computed in (False, bool(size))
    ]
    # Each result, of what a group has and a member's rank in it.
    expected: list[Callable[[list[Any], int], Any]] = []

    def expect_reduced(function: Any) -> None:
        for program in programs:
            program.all_reduce(function)
            program.reduce_scatter(function, members)
        expected.append(lambda got, rank: reduced(function, got))
        expected.append(lambda got, rank: np.split(reduced(function, got), members)[rank])

    def expect_gathered(dimension: int) -> None:
        for program in programs:
            program.all_gather(dimension, members)
        expected.append(lambda got, rank: np.concatenate(got, dimension))

    if mode != "partitions":
        for function in functions(dtype):
            expect_reduced(function)
        for dimension in (0, 1):
            expect_gathered(dimension)
    if can_exchange(form):
        for program in programs:
            program.all_to_all(members)
        expected.append(
            lambda got, rank: np.concatenate([np.split(each, members)[rank] for each in got], 1)
        )
    for program, order in zip(programs, ORDERS, strict=True):
        results = program.run(x, order)
        assert len(results) == len(expected)
        for result, expect in zip(results, expected, strict=True):
            for group in positions:
                for rank, position in enumerate(group):
                    same(result[position], expect([x[each] for each in group], rank))


def check_permutations(dtype: str, size: str = "") -> None:
    """Pairs of replicas, of partitions, and of partitions of each replica; a position without a source gets zeros."""
    rows = rows_of(dtype, size)
    x = operands(dtype, rows)
    for replicas, partitions, mode in (
        (8, 1, "replicas"),
        (1, 8, "partitions"),
        (2, 4, "partitions"),
        (4, 2, "replicas"),
    ):
        ids = replicas if mode == "replicas" else partitions
        some = [[0, ids - 1], [1, 1], [ids - 1, 0]]
        program = Program(dtype, replicas, partitions, mode, [], rows, computed=bool(size))
        program.permute([[i, (i + 1) % ids] for i in range(ids)])
        program.permute(some)
        found = program.run(x, PERMUTED)
        for result, pairs in zip(
            found, ({i: (i - 1) % ids for i in range(ids)}, {t: s for s, t in some}), strict=True
        ):
            for position in range(8):
                replica, partition = divmod(position, partitions)
                me = replica if mode == "replicas" else partition
                if me not in pairs:
                    same(result[position], np.zeros_like(x[0]))
                    continue
                source = (
                    pairs[me] * partitions + partition
                    if mode == "replicas"
                    else replica * partitions + pairs[me]
                )
                same(result[position], x[source])


def check_uneven_groups(dtype: str, size: str = "") -> None:
    """Of a reduction only: the groups need not be of one size."""
    rows = rows_of(dtype, size)
    groups, x = [[5, 0, 2], [1, 3, 4, 6, 7]], operands(dtype, rows)
    program = Program(dtype, 8, 1, "replicas", groups, rows, computed=bool(size))
    for function in functions(dtype):
        program.all_reduce(function)
    for result, function in zip(program.run(x), functions(dtype), strict=True):
        for group in groups:
            for position in group:
                same(result[position], reduced(function, [x[each] for each in group]))


def check_by_partitioner(dtype: str) -> None:
    """Reductions over each subset of a mesh's axes, which XLA writes as iota groups, transposed where the axes are not
    the last ones.
    """
    mesh = grid(a=2, b=2, c=2)
    x = operands(dtype).reshape(2, 4, 32)
    ways = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum"}
    if dtype == "bool":
        ways = {"all": "and", "any": "or"}
    if dtype.startswith("complex"):
        ways = {"sum": "add", "prod": "multiply"}
    subsets = [s for count in (1, 2, 3) for s in itertools.combinations(range(3), count)]

    @jax.jit
    def f(x):
        options = {} if dtype == "bool" else {"dtype": x.dtype}
        reduce = {
            way: functools.partial(getattr(jnp, way), **(options if way in ("sum", "prod") else {}))
            for way in ways
        }
        return [[reduce[way](x, axis=axes) for axes in subsets] for way in ways]

    found = f(place(mesh, x, "a", "b", "c"))
    for results, function in zip(found, ways.values(), strict=True):
        for result, axes in zip(results, subsets, strict=True):
            expected = x
            for axis in sorted(axes, reverse=True):
                expected = reduced(function, list(np.moveaxis(expected, axis, 0)))
            if function == "multiply" and x.dtype.kind == "c":
                # XLA multiplies in another order within a device, which changes the signs of zeros.
                np.testing.assert_array_equal(np.asarray(result), expected)
            else:
                same(result, expected)


def check_by_name(dtype: str) -> None:
    """JAX's own collectives, along each axis of a mesh, over both, and in groups of an axis."""
    mesh, x = permuted(a=2, b=4), operands(dtype)
    groups = [[3, 0], [1, 2]]
    reduce = {"maximum": jax.lax.pmax, "minimum": jax.lax.pmin}
    if dtype == "bool":
        reduce = {"maximum": jax.lax.pmax}
    elif dtype.startswith("complex"):
        reduce = {"add": jax.lax.psum}
    else:
        reduce["add"] = jax.lax.psum
    whole = x.reshape(2, 4, ROWS, COLUMNS)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        x = x[0, 0]
        results = [r(x, axes) for r in reduce.values() for axes in ("a", "b", ("a", "b"))]
        results += [r(x, "b", axis_index_groups=groups) for r in reduce.values()]
        results += [
            jax.lax.all_gather(x, ("a", "b")),
            jax.lax.all_gather(x, "b", axis_index_groups=groups),
            jax.lax.all_to_all(x, "b", 0, 0, tiled=True, axis_index_groups=groups),
            jax.lax.all_to_all(x, ("a", "b"), 0, 1, tiled=True),
            jax.lax.ppermute(x, "b", [(0, 2), (3, 0)]),
        ]
        return [result[None, None] for result in results]

    expected = []
    for function in reduce:
        for axes in ((0,), (1,), (0, 1)):
            total = whole
            for axis in axes:
                one = reduced(function, list(np.moveaxis(total, axis, 0)))
                total = np.broadcast_to(np.expand_dims(one, axis), whole.shape)
            expected.append(total)
    member = [
        (groups[0], 1),
        (groups[1], 0),
        (groups[1], 1),
        (groups[0], 0),
    ]  # of b: its group, its rank
    for function in reduce:
        expected.append(
            np.stack(
                [
                    [reduced(function, [whole[a, m] for m in member[b][0]]) for b in range(4)]
                    for a in range(2)
                ]
            )
        )
    expected.append(np.broadcast_to(x, (2, 4, *x.shape)))
    expected.append(np.stack([[whole[a][member[b][0]] for b in range(4)] for a in range(2)]))

    def exchanged(a: int, b: int) -> np.ndarray:
        group, rank = member[b]
        return np.concatenate([np.split(whole[a, m], 2)[rank] for m in group])

    expected.append(np.stack([[exchanged(a, b) for b in range(4)] for a in range(2)]))
    expected.append(
        np.stack(
            [np.concatenate([np.split(each, 8)[i] for each in x], 1) for i in range(8)]
        ).reshape(2, 4, 1, -1)
    )
    moved = np.zeros_like(whole)
    moved[:, 2], moved[:, 0] = whole[:, 0], whole[:, 3]
    expected.append(moved)
    for result, want in zip(f(place(mesh, whole, "a", "b")), expected, strict=True):
        same(result, want)


def check_by_pmap(dtype: str) -> None:
    x, groups = operands(dtype), [[6, 1], [0, 7], [2, 3], [5, 4]]

    @functools.partial(jax.pmap, axis_name="i")
    def f(x):
        most = jax.lax.pmax if not dtype.startswith("complex") else jax.lax.psum
        return most(x, "i", axis_index_groups=groups), jax.lax.all_gather(
            x, "i", axis_index_groups=groups
        )

    most, gathered = (np.asarray(each) for each in f(x))
    function = "add" if dtype.startswith("complex") else "maximum"
    for group in groups:
        for position in group:
            same(most[position], reduced(function, [x[each] for each in group]))
            same(gathered[position], x[group])


def check_elements_of_four_bits() -> None:
    """XLA exchanges them as whole bytes, and packs arguments and results."""
    x = np.random.default_rng(0).integers(-8, 8, (16, 16))

    @mapped(grid(a=2, b=4), P("a", "b"), P("a", "b"))
    def f(x):
        return (
            jax.lax.all_gather(x, "a", tiled=True),
            jax.lax.ppermute(x, "a", [(0, 1)]),
            jax.lax.pmax(x, "b"),
            jax.lax.all_to_all(x, "b", 0, 0, tiled=True),
        )

    packed = place(grid(a=2, b=4), x.astype(jnp.int4), "a", "b")
    gathered, moved, most, exchanged = (np.asarray(each).astype(np.int8) for each in f(packed))
    same(gathered, np.concatenate([x, x]).astype(np.int8))
    same(moved, np.concatenate([x[:8] * 0, x[:8]]).astype(np.int8))
    columns = x.reshape(16, 4, 4).max(1)
    same(most, np.tile(columns, (1, 4)).astype(np.int8))
    blocks = x.reshape(2, 4, 2, 4, 4).transpose(0, 3, 2, 1, 4)  # a, to and from b, rows, columns
    same(exchanged, blocks.reshape(16, 16).astype(np.int8))


def check_broadcasts(dtype: str, size: str = "") -> None:
    """The first position of a group sends; positions in no group get zeros."""
    rows = rows_of(dtype, size)
    x = operands(dtype, rows)
    forms = [] if size else [FORMS[form] for form in FORMS if can_exchange(form)]
    for replicas, partitions, mode, groups, positions in (
        (8, 1, "replicas", [[6, 1, 3], [0, 4, 2]], [[6, 1, 3], [0, 4, 2]]),
        (2, 4, "partitions", [[1, 3]], [[1, 3], [5, 7]]),
        (8, 1, "replicas", [], ALL),
        (2, 4, "replicas", [], [[i, i + 4] for i in range(4)]),
        (2, 4, "partitions", [], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        *forms,
    ):
        program = Program(dtype, replicas, partitions, mode, groups, rows, computed=bool(size))
        program.broadcast()
        (found,) = program.run(x, PERMUTED)
        source = {position: group[0] for group in positions for position in group}
        for position in range(8):
            expected = x[source[position]] if position in source else np.zeros_like(x[0])
            same(found[position], expected)


def check_ragged(dtype: str, form: str, entries: str, size: str = "") -> None:
    """Members of each group send each other random numbers of rows; `entries` is the type of the lists of them. Rows
    come in units, as many as make an array of the size.
    """
    replicas, partitions, mode, groups, positions = FORMS[form]
    members, units = len(positions[0]), 24
    scale = max(1, rows_of(dtype, size) // units)
    draw = np.random.default_rng(0).integers
    x = draw(0, 100, (8, units * scale, COLUMNS))
    most = units // members
    begins = draw(0, units - most + 1, (8, members))
    counts = draw(0, most + 1, (8, members))
    intos = np.zeros_like(begins)
    x[:, :4, :members] = 0
    for group in positions:
        for rank, position in enumerate(group):
            intos[position] = rank * most + draw(0, most - counts[position] + 1)
        for rank, position in enumerate(group):
            lists = (begins[position], counts[position], intos[position], counts[group, rank])
            x[position, :4, :members] = lists
    rows = x.astype(getattr(jnp, dtype))
    program = Program(dtype, replicas, partitions, mode, groups, len(x[0]), computed=bool(size))
    program.ragged(members, entries, scale)
    (found,) = program.run(rows, PERMUTED)
    expected = rows.copy()
    for group in positions:
        for source, (rank, target) in itertools.product(group, enumerate(group)):
            begin, count, into = (
                int(each[source, rank]) * scale for each in (begins, counts, intos)
            )
            expected[target, into : into + count] = rows[source, begin : begin + count]
    for position in range(8):
        same(found[position], expected[position])
