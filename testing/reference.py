"""Runs an unmodified JAX script on the XLA CPU plugin, which JAX loads into the script's process.

Tests compare the results through Gangway with this reference, bit by bit. It has the same plugin, the
same number of devices, the same thread pool (`NPROC` decides how XLA splits a dot, and so its
rounding), and no YNNPACK fusions either (docs/internals/probes.md says why).

    python testing/reference.py [--devices 8] script.py [arguments]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLUGIN = ROOT / ".deps" / "xla_cpu_pjrt" / "xla_cpu_pjrt.so"
NO_YNN_FUSIONS = "--xla_cpu_experimental_ynn_fusion_type="
DEVICES = 8


def threads(per_worker: int) -> str:
    """The size of the pool that `gangway up` gives to workers of `per_worker` devices on this host."""
    return str(max(10, per_worker + (os.cpu_count() or 1)))


def register(devices: int = DEVICES, per_worker: int = 0) -> None:
    """Makes the plugin JAX's default backend, with the pool of workers of `per_worker` devices (default: all). Call it
    before JAX is used.
    """
    os.environ["NPROC"] = threads(per_worker or devices)
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
