"""The client of serve.py (mesh_clients.py says how it is asked): examples/serve_pd.py, as it is or with simulated work."""

from __future__ import annotations

import functools
from typing import Any

import mesh_clients

mesh_clients.choose()

import jax  # noqa: E402
import numpy as np  # noqa: E402
import serve_pd  # noqa: E402


def slow_prefill(prefill: serve_pd.Prefill, clock: mesh_clients.Clock, seconds: float) -> None:
    """Makes it take so long, in turn with what else has the clock."""
    inner: Any = prefill._read

    def read(clock: Any, params: Any, text: Any) -> Any:
        cache, row = inner(params, text)
        clock, row = mesh_clients.work(clock, row, seconds)
        return clock, cache, row

    compiled = jax.jit(read)

    def call(params: Any, text: Any) -> Any:
        clock.value, *arrays = compiled(clock.value, params, text)
        return tuple(arrays)

    prefill._read = call


def slow_decode(decode: serve_pd.Decode, clock: mesh_clients.Clock, seconds: float) -> None:
    inner: Any = decode._tick

    def tick(clock: Any, params: Any, state: Any) -> Any:
        state, tokens = inner(params, state)
        clock, tokens = mesh_clients.work(clock, tokens, seconds)
        return clock, state._replace(token=tokens[1]), tokens

    compiled = jax.jit(tick, donate_argnums=(2,))

    def call(params: Any, state: Any) -> Any:
        clock.value, *results = compiled(clock.value, params, state)
        return tuple(results)

    decode._tick = call


@functools.cache
def made(flags: str, prefill_s: float, tick_s: float) -> tuple[Any, Any]:
    args = serve_pd.parse_args(flags.split())
    _, places, lanes = serve_pd.make(args)
    if tick_s:
        clocks = [mesh_clients.Clock(place.everywhere) for place in places]
        for lane, (prefill, decode) in enumerate(lanes):
            slow_prefill(prefill, clocks[lane], prefill_s)
            slow_decode(decode, clocks[lane if args.aggregated else 1], tick_s)
    requests = serve_pd.make_requests(args)
    serve_pd.serve_all(requests[:4], lanes, args.ahead)  # compiles
    return requests, lanes


def serve(flags: str, prefill_s: float, tick_s: float, ahead: int) -> dict[str, Any]:
    requests, lanes = made(flags, prefill_s, tick_s)
    served = serve_pd.serve_all(requests, lanes, ahead)
    ticks, first = np.array(served.tick_s) * 1e3, np.array(served.first_token_s) * 1e3
    return {
        "p50": np.percentile(ticks, 50),
        "p99": np.percentile(ticks, 99),
        "first": np.percentile(first, 50),
        "ticks": ticks.round(3).tolist(),
        "answers": served.answers,
    }


if __name__ == "__main__":
    mesh_clients.answer_commands(lambda command: serve(**command))
