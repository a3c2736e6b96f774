"""The custom calls that JAX's lowerings make, for gangway/compiler/check_calls.

    tools/custom_calls.py calls > gangway/compiler/check_calls/testdata/jax_calls.txt
    tools/custom_calls.py count FILE -- PYTEST-ARGUMENTS

`calls` lowers functions of JAX for CPU and CUDA and prints each different call as one line: platform, partitions, and
a module of it alone, as text of gangway.xla.hlo.Module. `count` runs tests, JAX's own for example, lowers each program
that they lower for CPU and for CUDA, and writes how many of them call each target; and beside FILE, with the suffix
.calls, the calls themselves. GANGWAY_JAX_CALLS=FILE.calls has compiler_check_calls_test judge these. None of it needs
a GPU.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
POSITIONS = 8


def module_type() -> Any:
    """The message gangway.xla.hlo.Module, from its .proto file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        proto = "gangway/xla/hlo_program.proto"
        subprocess.run(["protoc", f"-I{ROOT}", f"--descriptor_set_out={out}", proto], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gangway.xla.hlo.Module"))


def shapes_of(instructions: Any) -> Iterator[Any]:
    for instruction in instructions:
        yield instruction.shape
        yield from instruction.shape.tuple_shapes
        yield from instruction.operand_shapes_with_layout


def alone(module: Any, computation: Any, call: Any) -> Any:
    """A module of the call, its operands as parameters, and the computations that it calls."""
    result = type(module)(entry_computation_id=1)
    for name, text in module.frontend_attributes.map.items():
        result.frontend_attributes.map[name] = text
    main = result.computations.add(id=1)
    by_id = {each.id: each for each in computation.instructions}
    for i, operand in enumerate(call.operand_ids):
        parameter = main.instructions.add(opcode="parameter", parameter_number=i, id=i + 1)
        parameter.shape.CopyFrom(by_id[operand].shape)
        if by_id[operand].HasField("sharding"):
            parameter.sharding.CopyFrom(by_id[operand].sharding)
    copy = main.instructions.add()
    copy.CopyFrom(call)
    for field in ("metadata", "statistics_viz", "name", "operand_ids"):
        copy.ClearField(field)
    copy.id = len(call.operand_ids) + 1
    copy.operand_ids.extend(range(1, copy.id))
    main.root_id = copy.id
    for number, callee in enumerate(call.called_computation_ids):
        found = next(each for each in module.computations if each.id == callee)
        result.computations.add().CopyFrom(found)
        result.computations[-1].id = copy.called_computation_ids[number] = number + 2
    copy.frontend_attributes.map.pop("xla.sdy.sharding_rule", None)
    for shape in shapes_of(main.instructions):
        shape.ClearField("is_dynamic_dimension")
        shape.layout.ClearField("tail_padding_alignment_in_elements")
    # The plugin's door puts the number of a function in the place of an index of jaxlib's.
    copy.backend_config = re.sub(
        rb"^\{index = \d+ : ui64\}$", b"{callback = 1 : i64}", copy.backend_config
    )
    if copy.custom_call_target in ("InspectSharding", "CustomSPMDPartitioning"):
        copy.backend_config = b"140237090925328"  # an address, which differs between runs
    return result


def linear_algebra(dtype: str) -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    import jax.numpy as jnp
    import jax.scipy.linalg as scipy
    from jax.lax import linalg

    x, v, tall = jnp.ones((3, 4, 4), dtype), jnp.ones((3, 4), dtype), jnp.ones((2, 5, 3), dtype)
    for a in (tall, tall.mT):
        for uv, full in ((True, True), (True, False), (False, True)):
            for algorithm in linalg.SvdAlgorithm:
                yield (
                    (
                        lambda a, uv=uv, full=full, algorithm=algorithm: linalg.svd(
                            a, compute_uv=uv, full_matrices=full, algorithm=algorithm
                        )
                    ),
                    [a],
                )
        yield jnp.linalg.qr, [a]
        yield linalg.lu, [a]
        yield (lambda a: scipy.qr(a[0], pivoting=True, mode="r")), [a]
    yield linalg.cholesky, [x]
    for function in (linalg.eigh, linalg.eig, linalg.schur, linalg.hessenberg, linalg.tridiagonal):
        yield function, [x]
    yield (lambda a: linalg.eigh(a, lower=False)), [x]
    yield (lambda a: linalg.eig(a, compute_left_eigenvectors=False)), [x]
    yield (lambda a: linalg.triangular_solve(a, a, left_side=True, lower=True)), [x]
    yield (
        (lambda a, b: linalg.triangular_solve(a, b, transpose_a=True)),
        [x, jnp.ones((3, 2, 4), dtype)],
    )
    yield linalg.tridiagonal_solve, [v, v, v, x]
    yield (
        (lambda a, b, c, d: linalg.tridiagonal_solve(a, b, c, d, perturb_singular=True)),
        [v, v, v, x],
    )
    yield linalg.householder_product, [tall, jnp.ones((2, 3), dtype)]
    yield (lambda a, t, c: linalg.ormqr(a, t, c)), [x, v, x]
    yield (
        (lambda a, t, c: linalg.ormqr(a, t, c, left=False, transpose=True)),
        [x, v, tall.mT[:1].repeat(3, 0)[:, :, :4]],
    )
    if dtype.startswith("float"):
        yield linalg.cholesky_update, [x[0], v[0]]
        yield (lambda a, c: linalg.symmetric_product(a, c)), [tall, jnp.ones((2, 5, 5), dtype)]


def others() -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    import jax
    import jax.numpy as jnp
    from jax.experimental import layout, shard_alike
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.lax import linalg

    x = jnp.ones((8, 8, 8), "float32")
    yield (lambda: jax.random.uniform(jax.random.key(0), (4,))), []
    yield (lambda p: linalg.lu_pivots_to_permutation(p, 6)), [jnp.ones((3, 4), "int32")]
    yield (lambda x: jax.lax.top_k(x, 3)), [x]
    yield (lambda x: jax.lax.approx_max_k(x, 3)), [x]
    yield (lambda x: layout.with_layout_constraint(x, layout.Layout((0, 1, 2)))), [x]
    yield (lambda x: shard_alike.shard_alike(x, x * 2)), [x]
    yield (lambda x: jax.pure_callback(lambda y: y, (x, x[0, 0]), x)), [x]
    yield (lambda x: jax.debug.print("{}", x)), [x]
    yield (lambda x: (jax.debug.print("{}", x, ordered=True), x)[1]), [x]
    yield (lambda x: jax.debug.print("{}", x, partitioned=True)), [x]
    yield (lambda: jax.debug.print("nothing")), []

    @custom_partitioning
    def twice(x):
        return x * 2

    twice.def_partition(
        infer_sharding_from_operands=lambda mesh, shapes, result: shapes[0].sharding,
        partition=lambda mesh, shapes, result: (
            mesh,
            lambda x: x * 2,
            result.sharding,
            (shapes[0].sharding,),
        ),
        sharding_rule="i j k->i j k",
    )
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spec = jax.sharding.PartitionSpec
    cut = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec("a")))
    yield twice, [cut]
    yield (lambda x: (jax.debug.inspect_array_sharding(x * 2, callback=print), x)[1]), [cut]
    place = jax.sharding.NamedSharding(mesh, spec(None, "a"), memory_kind="pinned_host")
    yield (lambda x: jax.device_put(x, place)), [cut]
    for spec_in in (spec(None, "a"), spec(spec.UNCONSTRAINED, "a")):
        sharding = jax.sharding.NamedSharding(mesh, spec_in)
        yield (lambda x, s=sharding: jax.lax.with_sharding_constraint(x, s) * 2), [cut]
    for names in ({"a", "b"}, {"a"}):
        specs = (spec(None, "a"), spec(("a", "b")) if len(names) == 2 else spec("a"))
        results = (spec(), spec(None, "a"))

        def body(y, z):
            jax.debug.print("{}", y)
            return jax.lax.psum(y, "a"), z

        mapped = jax.shard_map(
            body, mesh=mesh, in_specs=specs, out_specs=results, axis_names=names, check_vma=False
        )
        yield jax.jit(mapped), [cut, cut]
    alone = jax.shard_map(
        lambda: jax.lax.axis_index("a")[None],
        mesh=mesh,
        in_specs=(),
        out_specs=spec("a"),
        check_vma=False,
    )
    yield alone, []
    yield from nested_and_explicit()


def nested_and_explicit() -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    import jax
    import jax.numpy as jnp

    spec, types = jax.sharding.PartitionSpec, jax.sharding.AxisType
    x = jnp.ones((8, 8), "float32")
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(types.Auto,) * 2)

    def inner(x):
        return jax.shard_map(
            lambda x: x * 2,
            in_specs=spec(None, "b"),
            out_specs=spec(None, "b"),
            axis_names={"b"},
            check_vma=False,
        )(x)

    outer = jax.shard_map(
        inner,
        mesh=mesh,
        in_specs=spec("a"),
        out_specs=spec("a"),
        axis_names={"a"},
        check_vma=False,
    )
    yield jax.jit(outer), [x]
    one = jax.make_mesh((1,), ("c",), axis_types=(types.Auto,))
    yield (
        jax.shard_map(lambda x: x * 2, mesh=one, in_specs=spec("c"), out_specs=spec("c")),
        [x],
    )
    explicit = jax.make_mesh((2, 4), ("a", "b"), axis_types=(types.Explicit,) * 2)

    def over(*dims: Any, **options: Any) -> Any:
        return jax.sharding.NamedSharding(explicit, spec(*dims, **options))

    left, right = jax.device_put(x, over("a", "b")), jax.device_put(x, over("b", None))

    def product(x, y):
        partial = jnp.einsum("ij,jk->ik", x, y, out_sharding=over("a", unreduced={"b"}))
        return jax.sharding.reshard(partial, over("a"))

    yield product, [left, right]
    yield (lambda x: jax.sharding.reshard(x, over(None, ("a", "b")))), [left]


def calls_of(module: Any, platform: str, message: Any) -> Iterator[str]:
    """The lines of an MLIR module: platform, positions, and a module of one call."""
    from google.protobuf import text_format
    from jax._src.interpreters import mlir
    from jaxlib import _jax

    code = mlir.module_to_bytecode(module)
    hlo = _jax.mlir.mlir_module_to_xla_computation(code, use_tuple_args=False)
    positions = module.operation.attributes["mhlo.num_partitions"].value
    program = message.FromString(hlo.as_serialized_hlo_module_proto())
    for computation in program.computations:
        for call in computation.instructions:
            if call.opcode == "custom-call":
                one = alone(program, computation, call)
                text = text_format.MessageToString(one, as_one_line=True)
                yield f"{platform} {positions} {text}"


def print_calls() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={POSITIONS}"
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_threefry_gpu_kernel_lowering", True)
    message = module_type()
    lines: set[str] = set()
    refused: set[str] = set()

    def add(function: Callable[..., Any], arguments: list[Any], platform: str) -> None:
        try:
            traced = jax.jit(function).trace(*arguments)
            module = traced.lower(lowering_platforms=(platform,)).compiler_ir()
        except Exception as error:  # JAX refuses by errors of any kind; they are printed
            refused.add(f"{platform}: {error}"[:150])
            return
        lines.update(calls_of(module, platform, message))

    for platform, dtypes in (
        ("cpu", "float32 float64 complex64 complex128"),
        ("cuda", "float32 complex128"),
    ):
        for dtype in dtypes.split():
            for function, arguments in linear_algebra(dtype):
                add(function, arguments, platform)
    for platform in ("cpu", "cuda"):
        for shardy in (True, False):
            jax.config.update("jax_use_shardy_partitioner", shardy)
            for function, arguments in others():
                add(function, arguments, platform)
    print("\n".join(sorted(lines)))
    print("\n".join(sorted(refused)), file=sys.stderr)


class Counter:
    """Counts the targets of all programs that are lowered while it is installed, and keeps their calls."""

    def __init__(self) -> None:
        self.message = module_type()
        self.calls: set[str] = set()
        self.programs: collections.Counter[str] = collections.Counter()
        self.targets: dict[str, collections.Counter[str]] = {
            platform: collections.Counter() for platform in ("cpu", "cuda")
        }

    def install(self) -> None:
        from jax._src.interpreters import mlir

        original = mlir.lower_jaxpr_to_module

        def lower(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            self.count("cpu", result.module)
            try:
                self.count(
                    "cuda", original(*arguments, **{**options, "platforms": ("cuda",)}).module
                )
            except Exception:  # of any kind, and there is no GPU to ask why
                self.programs["cuda, not lowered"] += 1
            return result

        mlir.lower_jaxpr_to_module = lower

    def count(self, platform: str, module: Any) -> None:
        self.programs[platform] += 1
        text = module.operation.get_asm(large_elements_limit=4)
        targets = set(re.findall(r'custom_call @"?([^"\s(]+)"?\(', text))
        self.targets[platform].update(targets)
        if targets:
            self.calls.update(calls_of(module, platform, self.message))


def count(out: pathlib.Path, arguments: list[str]) -> int:
    import pytest

    counter = Counter()
    counter.install()
    status = pytest.main(arguments)
    result = {
        "programs": dict(counter.programs),
        "targets": {name: dict(sorted(found.items())) for name, found in counter.targets.items()},
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".calls").write_text("".join(f"{line}\n" for line in sorted(counter.calls)))
    return int(status)


def main() -> int:
    if sys.argv[1:2] == ["calls"]:
        print_calls()
        return 0
    if sys.argv[1:2] == ["count"] and len(sys.argv) > 4 and sys.argv[3] == "--":
        return count(pathlib.Path(sys.argv[2]), sys.argv[4:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
