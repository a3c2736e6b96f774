"""A client that executes one Python statement per line of stdin, and answers each with one JSON line:
{"ok": value of `result`} or {"error": text, "type": name}. So a test controls what happens between
two steps of a live session.
"""

import json
import sys
from typing import Any

import gangway

gangway.connect()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np}
print(json.dumps({"ok": [device.id for device in jax.devices()]}), flush=True)
for line in sys.stdin:
    names["result"] = None
    try:
        exec(line, names)  # from the test that started this process
        answer = {"ok": names["result"]}
    except Exception as error:
        answer = {"error": str(error), "type": type(error).__name__}
    print(json.dumps(answer, default=float), flush=True)
