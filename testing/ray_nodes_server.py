"""Nodes of a Ray cluster on this machine, in Ray's own Python: each has its own raylet, and its own address of loopback.
For ray_nodes.py.

Reads JSON lines: {"do": "add", "name": N, "arguments": {...}}, {"do": "kill", "name": N} as a power failure would. Each
is answered by a JSON line. When standard input ends, so do all nodes.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from ray.cluster_utils import Cluster


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    cluster = Cluster()
    nodes: dict[str, Any] = {}

    def do(wanted: dict[str, Any]) -> str:
        name = wanted["name"]
        if wanted["do"] == "add":
            nodes[name] = cluster.add_node(**wanted["arguments"])
        else:
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        return str(cluster.address)

    try:
        for line in sys.stdin:
            try:
                answer = {"address": do(json.loads(line))}
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
