"""Runs an unmodified JAX script on the XLA CPU plugin, which JAX loads into the script's process.

Tests compare the results through Gangway with this reference, bit by bit. It has the same plugin, the
same number of devices, the same thread pool (`NPROC` decides how XLA splits a dot, and so its
rounding; the tests' clusters have THREADS, too), and no YNNPACK fusions either (docs/internals/probes.md
says why).

    python testing/reference.py [--devices 8] script.py [arguments]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLUGIN = ROOT / ".deps" / "xla_cpu" / "pjrt_c_api_cpu_plugin.so"
NO_YNN_FUSIONS = "--xla_cpu_experimental_ynn_fusion_type="
DEVICES = 8
# Of the pool. In-process, a launch blocks up to a thread per device beside those in a collective, while 32 launches are
# in flight (docs/internals/thread-pool.md), so `gangway up`'s own choice would be too small.
THREADS = str(
    max(16, DEVICES + (os.cpu_count() or 1))
)  # a worker refuses fewer than devices and cores


def register(devices: int = DEVICES) -> None:
    """Makes the plugin JAX's default backend. Call it before JAX is used."""
    os.environ["NPROC"] = THREADS
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {NO_YNN_FUSIONS}".strip()
    os.environ["JAX_PLATFORMS"] = "xla_cpu_plugin"
    from jax._src import xla_bridge

    xla_bridge.register_plugin(
        "xla_cpu_plugin", library_path=str(PLUGIN), options={"cpu_device_count": devices}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=DEVICES)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    register(args.devices)
    sys.argv = [args.script, *args.arguments]
    sys.path[0] = str(pathlib.Path(args.script).resolve().parent)
    runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
