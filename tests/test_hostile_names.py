"""Names that a client chooses, of its session, its programs and its files: wherever others read them, they print as
text on one line, and forge no row of a table or a log.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from faultlib import A_MINUTE, Console
from harness import Cluster, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]

FORGED = "island9/worker9    up"
HOSTILE = f"eve\x1b[2J\x1b]0;x\x07\n{FORGED}\r\u202egnp.py\u2028"
SHOWN = f"eve\\x1b[2J\\x1b]0;x\\x07\\n{FORGED}\\r\\u202egnp.py\\u2028"
LONG = HOSTILE + "x" * 10_000
LINE_MAX = 5000  # all of a session's waits are one line of JSON
# A program whose module has a hostile name: JAX would replace such characters in a function's.
RENAMED = """
import re
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
def run_renamed(x, name):
    text = re.sub(r"module @\\w+", lambda _: f'module @"{name}"', a_minute.lower(x).as_text(), count=1)
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    with mlir.make_ir_context():
        code = mlir.module_to_bytecode(ir.Module.parse(text))
    devices = xla_client.DeviceList(tuple(jax.devices()[:1]))
    executable = jax.devices()[0].client.compile_and_load(code, devices, options)
    return executable.execute_sharded([x])
"""


def check(text: str, where: str) -> None:
    """No character steers a terminal or hides, no line is forged, and none is longer than names may be."""
    odd = {
        c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")
    }
    assert not odd, (where, odd, text)
    for line in text.splitlines():
        assert not line.startswith(FORGED), (where, line)
        assert len(line) <= LINE_MAX, (where, len(line), line[:200])


def said(cluster: Cluster, *command: str) -> str:
    result = cluster.command(*command, "--port", str(cluster.port), timeout_s=20)
    assert result.returncode == 0, result.stdout + result.stderr
    check(result.stdout + result.stderr, " ".join(command))
    return result.stdout


def in_mlir(name: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in name.encode())


def test_names_with_control_characters_are_escaped_wherever_others_read_them(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 2).start()
    with Console(cluster, door="pjrt", environment={"GANGWAY_SESSION": LONG}) as client:
        client.do(f"exec(compile({A_MINUTE!r}, {HOSTILE!r}, 'exec'), globals())")
        client.do(f"exec({RENAMED!r}, globals())")
        client.do("x = jax.device_put(np.float32(1), jax.devices()[1]); y = a_minute(x)")
        client.do("x = jax.device_put(np.float32(1), jax.devices()[0])")
        client.do(f"z = run_renamed(x, {in_mlir(LONG)!r})")

        def both() -> list[dict[str, Any]]:
            waits = json.loads(said(cluster, "why", "--json"))["waits"]
            return waits if {d for w in waits for d in w["devices"]} >= {0, 1} else []

        waits = wait_for("both programs executing", both, 30)
        assert any(w["program"].startswith("eve__2J") for w in waits), waits  # XLA has renamed it
        assert any(w["source"].startswith(SHOWN) for w in waits), waits
        assert SHOWN in said(cluster, "why")
        status = said(cluster, "status")
        assert SHOWN in status, status
        assert not re.search(rf"^{FORGED}", status, re.MULTILINE), status
        (session,) = json.loads(said(cluster, "status", "--json"))["sessions"]
        assert session["client"].startswith(SHOWN) and len(session["client"]) <= 256, session
        out = tmp_path / "trace.json"
        said(cluster, "trace", "--out", str(out))
        events = json.loads(out.read_text())["traceEvents"]
        named = [event["name"] for event in events] + [
            event["args"]["name"] for event in events if event["ph"] == "M"
        ]
        assert [name for name in named if name.startswith("eve__2J")], sorted(
            {name[:80] for name in named}
        )
        for name in named:
            check(name, "trace")
            assert "\n" not in name, name
        os.kill(cluster.workers()[0]["pid"], signal.SIGKILL)  # while it runs both
        assert "DATA_LOSS" in client.ask("np.asarray(y)")["error"]
        cluster.wait_for_words("restarted")
    wait_for("the session's end", lambda: not cluster.status()["sessions"], 10)
    for path in pathlib.Path(cluster.state_dir).rglob("*.log"):
        check(path.read_text(), path.name)
    assert f"opens for {SHOWN}" in cluster.logs(1 << 20)
