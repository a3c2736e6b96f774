"""The scripts of check.py: plain JAX, which does not know where its devices are. `client.py PART OUT [ARGUMENT...]`
writes one line of JSON per result to OUT.
"""

from __future__ import annotations

import os
import sys

import clusters
import jax
import speeds
import values

if __name__ == "__main__":
    wanted = os.environ.get("GANGWAY_CHECK_BACKEND")
    if wanted and jax.default_backend() != wanted:
        sys.exit(f"JAX in-process has {jax.devices()}, which are not of the backend {wanted}")
    part, arguments = sys.argv[1], sys.argv[3:]
    {
        "values": lambda: values.run_all(arguments),
        "speeds": speeds.measure_all,
        "two_workers": lambda: clusters.two_workers(*arguments),
        "over_budget": clusters.over_budget,
        "products": clusters.products,
    }[part]()
