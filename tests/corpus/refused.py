"""Programs that must be refused with words that say what is wrong, before anything runs: each `check_*` meets its
refusal, and the devices work as before. Those of StableHLO's own verifier, in the client, are not among them: groups
that overlap, and pairs with two sources or two targets (gangway/collective/lowering/lowering_test.cc has them).
"""

import functools
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from corpus.by_hand import COLUMNS, ROWS, Program, run
from corpus.meshes import mapped, place, ring, values

TARGETS = ("gangway.collective", "gangway.position")
NUMBERS = np.ones((8, ROWS, COLUMNS), np.float32)


def refused(call: Callable[[], object], *words: str) -> None:
    try:
        jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"it was not refused: {words}")
    # Nothing ran, so nobody waits for a member, and the next program has the devices.
    total = jax.jit(jnp.sum)(place(ring(), np.ones(16, np.float32), "i"))
    assert float(total) == 16


def check_own_targets_over_workers():
    """With operands of any kind and number, in a program that communicates otherwise."""
    mesh = ring()
    x = place(mesh, values(8, 4), "i")
    for target, count in itertools.product(TARGETS, (0, 1, 3)):

        def call(x, target=target, count=count):
            result = jax.ShapeDtypeStruct((1, 4), jnp.float32)
            y = jax.ffi.ffi_call(target, result)(*[x] * count, number=np.int64(0))
            return jax.lax.psum(x, "i") + y

        f = mapped(mesh, P("i"), P("i"))(call)
        refused(functools.partial(f, x), target, "no program may call")


def check_own_targets_on_one_device():
    for target in TARGETS:
        f = jax.jit(jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((4,), jnp.float32)))
        refused(functools.partial(f, np.ones(4, np.float32)), target, "no program may call")


def check_own_targets_inside_of_a_loop():
    mesh = ring()

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        def body(_, x):
            kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
            y = jax.ffi.ffi_call("gangway.collective", (kind, jax.ShapeDtypeStruct((), jnp.int32)))
            return jax.lax.cond(
                x.sum() > 0, lambda x: y(x, np.int32(0), number=np.int64(0))[0], lambda x: x, x
            )

        return jax.lax.fori_loop(0, 3, body, x)

    refused(lambda: f(place(mesh, values(8, 4), "i")), "gangway.collective", "no program may call")


def check_own_targets_by_older_interfaces():
    """Versions of the call that do not go through typed handlers."""
    for version in (1, 2, 3):
        text = (
            f"module @m attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 8 : i32}} {{\n"
            f"func.func public @main(%x: tensor<{ROWS}x{COLUMNS}xf32>) -> tensor<{ROWS}x{COLUMNS}xf32> {{\n"
            f'%y = stablehlo.custom_call @gangway.collective(%x) {{api_version = {version} : i32, backend_config = ""}}'
            f" : (tensor<{ROWS}x{COLUMNS}xf32>) -> tensor<{ROWS}x{COLUMNS}xf32>\n"
            f"return %y : tensor<{ROWS}x{COLUMNS}xf32>\n}}\n}}"
        )
        refused(functools.partial(run, text, 8, 1, NUMBERS), "gangway.collective")


def by_hand(
    replicas: int,
    partitions: int,
    mode: str,
    groups: Sequence[Sequence[int]],
    build: Callable[[Program], None],
    dtype: str = "float32",
) -> Callable[[], object]:
    program = Program(dtype, replicas, partitions, mode, groups)
    build(program)
    return lambda: program.run(NUMBERS)


def check_groups_that_miss_members():
    def total(program):
        program.all_reduce("add")

    refused(by_hand(8, 1, "replicas", [[0, 1, 2, 3]], total), "all-reduce", "4 members")
    refused(by_hand(1, 8, "flattened", [[0, 1], [2, 3]], total), "all-reduce", "4 members")
    refused(by_hand(2, 4, "flattened", [[0, 1, 2, 3]], total), "all-reduce", "4 members")


def check_groups_out_of_range():
    def total(program):
        program.all_reduce("add")

    refused(by_hand(8, 1, "replicas", [[i] for i in range(9)], total), "all-reduce", "9 members")
    # XLA's compiler would take these, because the program has one replica.
    refused(
        by_hand(1, 8, "replicas", [[0, 1, 2, 3], [4, 5, 6, 7]], total),
        *("all-reduce", "8 members, and the program 1"),
    )
    refused(
        by_hand(1, 8, "replicas", [[0, 1]], lambda p: p.all_gather(0, 2)),
        *("all-gather", "2 members, and the program 1"),
    )


def check_pairs_out_of_range():
    refused(
        by_hand(8, 1, "replicas", [], lambda p: p.permute([[0, 9]])),
        "collective-permute",
        "outside of the program's 8",
    )
    refused(
        by_hand(1, 8, "replicas", [], lambda p: p.permute([[0, 1]])),
        *("collective-permute", "outside of the program's 1"),
    )


def check_reductions_that_the_compiler_lacks():
    def reduction(function, dtype):
        return by_hand(8, 1, "replicas", [], lambda p: p.all_reduce(function), dtype)

    refused(reduction("xor", "int32"), "UNIMPLEMENTED", "xor")
    refused(reduction("and", "int32"), "UNIMPLEMENTED", "and")
    refused(reduction("subtract", "float32"), "UNIMPLEMENTED", "subtract")
