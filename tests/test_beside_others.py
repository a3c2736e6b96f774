"""The PJRT plugin in one process with other libraries' copies of abseil, protobuf and gRPC, loaded before it or after it.
Their own venv, which is large, is for the nightly run (tools/versions/beside.txt).
"""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
import sys

import pytest
from harness import PATIENCE, ROOT, Cluster, client_environment

LIBRARY = (ROOT / "bin" / "libgangway_pjrt.so").resolve()
BOTH = pytest.mark.parametrize(
    "library", [LIBRARY, LIBRARY.with_name("libgangway_pjrt_grpc.so")], ids=["pjrt", "grpc"]
)

# Each uses what it brings, not only imports it.
OTHERS = {
    "grpcio": """
import concurrent.futures, grpc
from google.protobuf import struct_pb2
kept = struct_pb2.Value(string_value="there")
server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
answer = grpc.unary_unary_rpc_method_handler(lambda request, context: request * 2)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"Twice": answer})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
def use():
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/a.B/Twice")(b"ab", timeout=20) == b"abab"
    assert struct_pb2.Value.FromString(kept.SerializeToString()) == kept
""",
    "tensorflow": """
import tensorflow as tf
def use():
    assert float(tf.function(lambda x: tf.reduce_sum(x * 2))(tf.ones(3))) == 6
    assert tf.train.Feature.FromString(tf.train.Feature().SerializeToString()) is not None
""",
    "torch": """
import torch
def use():
    assert float((torch.ones(3) * 2).sum()) == 6
""",
}
OURS = """
import gangway, jax, numpy as np
gangway.connect()
def ours():
    assert float(jax.jit(lambda x: x.sum())(np.ones(8, np.float32))) == 8
"""


def output(*command: str) -> list[str]:
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@BOTH
def test_the_library_needs_the_c_library_alone(library: pathlib.Path) -> None:
    needed = [
        line.split("[")[1][:-1]
        for line in output("readelf", "-d", str(library))
        if "NEEDED" in line
    ]
    assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed


def test_the_library_with_grpc_exports_its_table_alone() -> None:
    library = LIBRARY.with_name("libgangway_pjrt_grpc.so")
    symbols = output("nm", "-D", "--defined-only", str(library))
    assert [line.split()[-1] for line in symbols] == ["GangwayGrpcLinks"]


@BOTH
def test_the_library_shares_no_symbol_with_other_copies(library: pathlib.Path) -> None:
    symbols = output("readelf", "--dyn-syms", "--wide", str(library))
    assert not [line for line in symbols if " UNIQUE " in line]


@BOTH
def test_the_library_loads_with_debian_12s_c_library(library: pathlib.Path) -> None:
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", "\n".join(output("objdump", "-T", str(library))))
    assert max((int(major), int(minor)) for major, minor in found) <= (2, 36)


@functools.cache
def large_venv() -> str:
    made = subprocess.run(
        [str(ROOT / "tools" / "venv.sh"), "beside"], capture_output=True, text=True, timeout=1500
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def python_with(other: str) -> str:
    return sys.executable if other == "grpcio" else large_venv()


@pytest.mark.timeout(1800)  # the first with a large library makes the venv
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize(
    "other",
    [
        each if each == "grpcio" else pytest.param(each, marks=pytest.mark.nightly)
        for each in OTHERS
    ],
)
def test_both_work_in_one_process(cluster: Cluster, other: str, order: str) -> None:
    theirs = OTHERS[other] + "use()\n"
    mine = OURS + "ours()\n"
    script = (theirs + mine if order == "before" else mine + theirs) + "use(); ours(); use()\n"
    ran = subprocess.run(
        [python_with(other), "-c", script],
        env=client_environment(cluster.port, "pjrt"),
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
