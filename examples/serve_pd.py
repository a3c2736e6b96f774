"""Serving with prefill and decoding apart: one mesh reads prompts, the other one decodes a continuous batch, and each
prompt's keys and values go from mesh to mesh.

    gangway up --islands 2 --workers 1 --devices 1 --detach
    gangway run examples/serve_pd.py
    gangway run examples/serve_pd.py --aggregated    # the alternative: each mesh does both for half of the requests

The script uses only `jit` and `device_put`. Requests arrive by a seeded schedule, and get a slot of the decoding mesh
when one is free. A prompt's keys and values are inserted there once they have arrived, so a tick, which decodes one
token in every slot, never waits for a prompt. A tick's tokens are all that the script reads. It dispatches the next tick
before it reads them (`--ahead`), so the devices need not wait for it.

The model has random weights: this is about the schedule. A request's tokens depend on its prompt and its number alone,
not on the slot, the other requests or the time: they are those of `train_lm.apply` on the whole text, token by token.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import train_lm as lm
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

END = 0  # the token that ends an answer
TEMPERATURE = 0.1  # random weights have small logits
KEYS_AND_VALUES = P(None, None, None, None, "tensor")  # layer, 2, slot, position, heads, head size


class Request(NamedTuple):
    number: int
    arrives: int  # before this tick
    prompt: np.ndarray
    tokens_max: int


class State(NamedTuple):
    """What a decoding mesh keeps: a row for each slot."""

    cache: jax.Array
    token: jax.Array  # the last one, which the next tick reads
    position: jax.Array  # of `token` in the text
    request: jax.Array


class Served(NamedTuple):
    answers: dict[int, list[int]]  # by the request's number
    tick_s: list[float]  # from the tokens of a tick to those of the next one
    first_token_s: list[float]  # from a request's arrival to its first token
    seconds: float


# --- Model ---


def rotate(x: jax.Array, position: jax.Array) -> jax.Array:
    """Rotary position embedding of [..., heads, head size] at `position` [...]."""
    half = x.shape[-1] // 2
    angle = position[..., None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def apply(
    params: lm.Params, cache: jax.Array, tokens: jax.Array, position: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Reads `tokens` [slots, time] from `position` [slots] on. Returns the cache with their keys and values, and the
    logits after each of them.
    """
    slots, length = tokens.shape
    positions = position[:, None] + jnp.arange(length)
    visible = jnp.arange(cache.shape[3]) <= positions[..., None]

    def block(x: jax.Array, layer: Any) -> tuple[jax.Array, jax.Array]:
        weights, cache = layer
        normed = lm.rms_norm(x, weights["attention_norm"])
        qkv = jnp.einsum("btd,dchk->cbthk", normed, weights["query_key_value"])
        query, key, value = rotate(qkv[0], positions), rotate(qkv[1], positions), qkv[2]
        write = jax.vmap(functools.partial(jax.lax.dynamic_update_slice_in_dim, axis=0))
        cache = jnp.stack([write(cache[0], key, position), write(cache[1], value, position)])
        scores = jnp.einsum("bqhk,bshk->bhqs", query, cache[0]) * query.shape[-1] ** -0.5
        shares = jax.nn.softmax(jnp.where(visible[:, None], scores, -1e9))
        x = x + jnp.einsum("bhqs,bshk,hkd->bqd", shares, cache[1], weights["attention_out"])
        return x + lm.mlp(lm.rms_norm(x, weights["mlp_norm"]), weights), cache

    x = params["embed"][tokens] * 50**0.5
    x, cache = jax.lax.scan(block, x, (params["layers"], cache))
    return cache, lm.unembed(params, x)


def sample(logits: jax.Array, request: jax.Array, position: jax.Array) -> jax.Array:
    """The token at `position` of a request's text."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), request), position)
    return jax.random.categorical(key, logits / TEMPERATURE).astype(jnp.int32)


# --- The two kinds of work ---


class Place:
    """A mesh with the model's weights."""

    def __init__(self, devices: list[jax.Device], model: lm.Model, seed: int) -> None:
        mesh = Mesh(np.array(devices), ("tensor",))
        shardings = jax.tree.map(functools.partial(NamedSharding, mesh), lm.param_specs())
        self.everywhere = NamedSharding(mesh, P())
        self.by_head = NamedSharding(mesh, KEYS_AND_VALUES)
        init = functools.partial(lm.init_params, model=model)
        self.params = jax.jit(init, out_shardings=shardings)(self.put(jax.random.key(seed)))

    def put(self, x: Any) -> Any:
        return jax.device_put(x, self.everywhere)


def empty_cache(model: lm.Model, slots: int, length: int) -> jax.Array:
    head = model.width // model.heads
    return jnp.zeros((model.layers, 2, slots, length, model.heads, head))


class Prefill:
    """Reads prompts, one at a time."""

    def __init__(self, place: Place, model: lm.Model, prompt_max: int) -> None:
        self._place, self._prompt_max = place, prompt_max

        def read(params: lm.Params, text: jax.Array) -> tuple[jax.Array, jax.Array]:
            length, request, prompt = text[0], text[1], text[2:]
            cache = empty_cache(model, 1, prompt_max)
            cache, logits = apply(params, cache, prompt[None], jnp.zeros(1, jnp.int32))
            token = sample(logits[0, length - 1], request, length)
            return cache, jnp.stack([token, length, request])

        self._read = jax.jit(read, out_shardings=(place.by_head, place.everywhere))

    def read(self, request: Request) -> tuple[jax.Array, jax.Array]:
        """Returns the prompt's keys and values, and a row of `State`'s columns with the answer's first token."""
        text = np.zeros(2 + self._prompt_max, np.int32)
        text[:2] = len(request.prompt), request.number
        text[2:][: len(request.prompt)] = request.prompt
        return self._read(self._place.params, self._place.put(text))


class Decode:
    """Decodes a token in each of its slots with each tick."""

    def __init__(self, place: Place, model: lm.Model, slots: int) -> None:
        self._place = place
        self.free = list(range(slots))
        self.requests: dict[int, Request] = {}  # those that are being decoded, by slot
        self._new: set[int] = set()  # slots whose first token was not read yet
        self._slots = [place.put(np.int32(slot)) for slot in self.free]

        def start() -> State:
            columns = [jnp.zeros(slots, jnp.int32) for _ in range(3)]
            return State(empty_cache(model, slots, model.context), *columns)

        def insert(state: State, cache: jax.Array, row: jax.Array, slot: jax.Array) -> State:
            cache = jax.lax.dynamic_update_slice(state.cache, cache, (0, 0, slot, 0, 0, 0))
            return State(
                cache, *(column.at[slot].set(x) for column, x in zip(state[1:], row, strict=False))
            )

        def tick(params: lm.Params, state: State) -> tuple[State, jax.Array]:
            cache, logits = apply(params, state.cache, state.token[:, None], state.position)
            position = jnp.minimum(state.position + 1, model.context - 1)  # free slots go on
            token = jax.vmap(sample)(logits[:, 0], state.request, position)
            tokens = jnp.stack([state.token, token])
            return State(cache, token, position, state.request), tokens

        columns: Any = [place.everywhere] * 3
        shardings: Any = State(*[place.by_head, *columns])
        self._state = jax.jit(start, out_shardings=shardings)()
        self._insert = jax.jit(insert, donate_argnums=(0,), out_shardings=shardings)
        self._tick = jax.jit(tick, donate_argnums=(1,), out_shardings=(shardings, place.everywhere))

    def put(self, cache: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.device_put(cache, self._place.by_head), self._place.put(row)

    def insert(self, request: Request, slot: int, cache: jax.Array, row: jax.Array) -> None:
        self._state = self._insert(self._state, cache, row, self._slots[slot])
        self.requests[slot] = request
        self._new.add(slot)

    def tick(self) -> "Tick":
        self._state, tokens = self._tick(self._place.params, self._state)
        tokens.copy_to_host_async()
        new, self._new = self._new, set()
        return Tick(self, tokens, dict(self.requests), new)

    def remove(self, slot: int) -> None:
        del self.requests[slot]
        self.free.append(slot)


class Tick(NamedTuple):
    """A tick whose tokens were not read yet."""

    decode: Decode
    tokens: jax.Array  # [2, slots]: the last ones, and those that it decoded
    requests: dict[int, Request]
    new: set[int]

    def read(self, answers: dict[int, list[int]]) -> list[int]:
        """Adds the tokens to the answers. Returns the requests that got their first one."""
        last, decoded = np.asarray(self.tokens).tolist()
        for slot, request in self.requests.items():
            if self.decode.requests.get(slot) is not request:
                continue  # it ended while this tick was under way
            answer = answers[request.number]
            for token in [last[slot], decoded[slot]] if slot in self.new else [decoded[slot]]:
                if self.decode.requests.get(slot) is request:
                    answer.append(token)
                    if token == END or len(answer) == request.tokens_max:
                        self.decode.remove(slot)
        return [self.requests[slot].number for slot in self.new]


# --- The schedule ---


class Arriving(NamedTuple):
    """A request whose keys and values are on their way to its slot."""

    request: Request
    slot: int
    arrays: Any  # (cache, row); jax.Array has no is_ready for type checkers


def serve(requests: list[Request], prefill: Prefill, decode: Decode, ahead: int) -> Served:
    began = read_last = time.monotonic()
    due, waiting = collections.deque(requests), collections.deque[Request]()
    arriving, under_way = collections.deque[Arriving](), collections.deque[Tick]()
    served = Served({request.number: [] for request in requests}, [], [], 0)
    arrived: dict[int, float] = {}
    now = 0
    while due or waiting or arriving or decode.requests:
        while due and due[0].arrives <= now:
            arrived[due[0].number] = time.monotonic()
            waiting.append(due.popleft())
        while waiting and decode.free:
            request, slot = waiting.popleft(), decode.free.pop()
            arriving.append(Arriving(request, slot, decode.put(*prefill.read(request))))
        if not decode.requests:  # the time until there are any is of no tick
            if not arriving:
                now = due[0].arrives
                continue
            jax.block_until_ready(arriving[0].arrays)
            read_last = time.monotonic()
        for each in [each for each in arriving if all(x.is_ready() for x in each.arrays)]:
            arriving.remove(each)
            decode.insert(each.request, each.slot, *each.arrays)
        under_way.append(decode.tick())
        if len(under_way) > ahead:
            first = under_way.popleft().read(served.answers)
            time_read = time.monotonic()
            served.tick_s.append(time_read - read_last)
            served.first_token_s.extend(time_read - arrived[number] for number in first)
            read_last = time_read
        now += 1
    return served._replace(seconds=time.monotonic() - began)


Lane = tuple[Prefill, Decode]  # where prompts are read, and where their answers are decoded


def serve_all(requests: list[Request], lanes: list[Lane], ahead: int) -> Served:
    """Each lane serves its share of the requests, and waits for no other lane."""
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        running = [
            pool.submit(serve, requests[i :: len(lanes)], *lane, ahead)
            for i, lane in enumerate(lanes)
        ]
        parts = [each.result() for each in running]
    return Served(
        {number: answer for part in parts for number, answer in part.answers.items()},
        [seconds for part in parts for seconds in part.tick_s],
        [seconds for part in parts for seconds in part.first_token_s],
        max(part.seconds for part in parts),
    )


def serve_alone(requests: list[Request], place: Place, model: lm.Model) -> dict[int, list[int]]:
    """The answers without a cache, slots or other requests: the whole text is read for each token."""

    @jax.jit
    def next_token(params: lm.Params, text: jax.Array, length: Any, request: Any) -> jax.Array:
        return sample(
            lm.apply(params, text[None], place.everywhere)[0, length - 1], request, length
        )

    answers: dict[int, list[int]] = {}
    for request in requests:
        text, length = np.zeros(model.context, np.int32), len(request.prompt)
        text[:length] = request.prompt
        answer = answers[request.number] = []
        while END not in answer and len(answer) < request.tokens_max:
            token = next_token(place.params, text, np.int32(length), np.int32(request.number))
            answer.append(int(token))
            text[length], length = answer[-1], length + 1
    return answers


def make_requests(args: argparse.Namespace) -> list[Request]:
    """Excerpts of Python's standard library, which arrive at random ticks."""
    rng, text = np.random.default_rng(args.seed), lm.standard_library()
    arrivals = np.cumsum(rng.exponential(args.every, args.requests)).astype(int).tolist()
    requests = []
    for number, arrives in enumerate(arrivals):
        length = int(rng.integers(args.prompt // 4, args.prompt + 1))
        start = int(rng.integers(0, len(text) - length))
        tokens_max = int(rng.integers(args.tokens // 4, args.tokens + 1))
        requests.append(Request(number, arrives, text[start : start + length], tokens_max))
    return requests


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a model with prefill and decoding apart.")
    parser.add_argument("--aggregated", action="store_true", help="both meshes do both")
    parser.add_argument(
        "--alone", action="store_true", help="one request after the other, without a cache"
    )
    parser.add_argument("--ahead", type=int, default=1, help="ticks dispatched before one is read")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--every", type=float, default=4.0, help="mean ticks between arrivals")
    parser.add_argument("--slots", type=int, default=16, help="of all decoding meshes")
    parser.add_argument("--prompt", type=int, default=128, help="tokens in a prompt at most")
    parser.add_argument("--tokens", type=int, default=64, help="tokens in an answer at most")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--devices", type=int, help="use only the first N devices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write answers and times to this file, as JSON")
    return parser.parse_args(arguments)


def make(args: argparse.Namespace) -> tuple[lm.Model, list[Place], list[Lane]]:
    devices = jax.devices()[: args.devices]
    heads = 4
    half = len(devices) // 2
    if min(args.requests, args.slots, args.ahead + 1) < 1 or args.every < 0:
        raise SystemExit(
            "--requests and --slots must be positive, --ahead and --every not negative"
        )
    if (
        not half
        or len(devices) % 2
        or heads % half
        or args.slots % 2
        or min(args.prompt, args.tokens) < 4
    ):
        raise SystemExit(
            f"needs an even number of devices (--devices) whose half divides {heads} heads, an even number of slots, and "
            f"prompts and answers of 4 tokens or more; there are {len(devices)} devices and {args.slots} slots"
        )
    model = lm.Model(args.layers, args.width, heads, 3 * args.width, args.prompt + args.tokens)
    places = [Place(part, model, args.seed) for part in (devices[:half], devices[half:])]
    decoding = places if args.aggregated else places[1:]
    slots = args.slots // len(decoding)
    lanes = [
        (Prefill(first, model, args.prompt), Decode(second, model, slots))
        for first, second in zip(places, decoding, strict=False)
    ]
    return model, places, lanes


def milliseconds(seconds: list[float]) -> str:
    p50, p99 = np.percentile(np.array(seconds) * 1e3, [50, 99])
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"


def main() -> None:
    args = parse_args()
    requests = make_requests(args)
    model, places, lanes = make(args)
    if args.alone:
        served = Served(serve_alone(requests, places[0], model), [], [], 0)
    else:
        serve_all(requests[:2], lanes, args.ahead)  # compiles
        served = serve_all(requests, lanes, args.ahead)
        count = sum(map(len, served.answers.values()))
        print(
            f"{len(requests)} requests, {count} tokens in {served.seconds:.1f} s\n"
            f"tick: {milliseconds(served.tick_s)}\n"
            f"first token: {milliseconds(served.first_token_s)}"
        )
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(served._asdict()))


if __name__ == "__main__":
    main()
