"""Blocks of plain JAX code that reach the cluster as one program, through the PJRT door: what they compute is what it is
without, whatever happens inside, and from the third pass on a block is one message.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import Cluster, run_client

# Values are small whole numbers, which are exact in any order of operations.
START = """
import ctypes, warnings
import gangway
from gangway import _callbacks
first, second = jax.devices()[:2]
f = jax.jit(lambda x, w: x * w + 1)
g = jax.jit(lambda x, w: (x - w, x[::-1]))
h = jax.jit(lambda x: x + 2, donate_argnums=0)
def put(values, device=first):
    return jax.device_put(np.asarray(values, np.float32), device)
weights = put([1, 2, 1, 1]), put([3, 1, 2, 5], second)
jax.block_until_ready(weights)
def steps(x, w):
    for _ in range(5):
        y = jax.device_put(f(x, w[0]), second)
        y, z = g(y, w[1])
        x = h(jax.device_put(z, first))
    return x, y
def expected(x, w):
    for _ in range(5):
        y = x * w[0] + 1
        y, z = y - w[1], y[::-1]
        x = z + 2
    return x, y
w = [np.asarray(each) for each in weights]
def same(got, want):
    return all(np.asarray(a).tobytes() == b.astype(np.float32).tobytes() for a, b in zip(got, want))
def frames():
    counts = (ctypes.c_uint64 * 4)()
    _callbacks._extension.traffic(counts)
    return counts[0]
def told(block):
    return [block.launches, block.operations_sent_as_they_came, block.cut_by]
# What a block reports, and whether its results are right. Nothing of the block before is under way.
def once(seed, make=put, start=range(4)):
    x = make([seed + i for i in start])
    jax.block_until_ready(x)
    before = frames()
    with gangway.program() as block:
        got = steps(x, weights)
    sent = frames() - before
    jax.block_until_ready(got)
    return told(block) + [sent, same(got, expected(np.asarray(x), w))]
"""
NO_ANSWER = ""


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        opened.do(f"exec({START!r}, globals())", 60)
        yield opened


def run(console: Console, statements: str) -> None:
    console.do(f"exec({statements!r}, globals())", 60)


def test_a_block_is_one_message_from_its_third_pass_on(console: Console) -> None:
    passes = [console.do(f"result = once({seed})", 60) for seed in range(5)]
    assert all(right for *_, right in passes), passes
    launches, as_they_came, cut_by, _, _ = passes[0]
    assert cut_by == "compile"
    assert as_they_came > 20
    launches, as_they_came, cut_by, _, _ = passes[1]
    assert (launches, cut_by) == (0, NO_ANSWER)
    assert as_they_came >= 20
    for launches, as_they_came, cut_by, sent, _ in passes[2:]:
        assert (launches, as_they_came, cut_by) == (1, 0, NO_ANSWER)
        assert sent <= 1


def test_a_value_that_is_read_inside_ends_a_message(console: Console) -> None:
    run(
        console,
        "def read(seed):\n"
        "    x = put([seed, 1, 2, 3])\n"
        "    with gangway.program() as block:\n"
        "        y, _ = steps(x, weights)\n"
        "        value = float(y[0])\n"
        "        z = steps(y, weights)\n"
        "    want = expected(np.asarray(x), w)[0]\n"
        "    return told(block) + [value == want[0] and same(z, expected(want, w))]\n",
    )
    passes = [console.do(f"result = read({seed})", 60) for seed in range(5)]
    assert all(right for *_, right in passes), passes
    launches, _, cut_by, _ = passes[-1]
    assert launches >= 2  # what reads an element is itself a run
    assert cut_by != NO_ANSWER


def test_an_exception_inside_loses_nothing(console: Console) -> None:
    run(
        console,
        "def fails(seed):\n"
        "    x = put([seed, 1, 2, 3])\n"
        "    try:\n"
        "        with gangway.program() as block:\n"
        "            got = steps(x, weights)\n"
        "            raise KeyError('of the script')\n"
        "    except KeyError:\n"
        "        return told(block)[:2] + [same(got, expected(np.asarray(x), w))]\n",
    )
    passes = [console.do(f"result = fails({seed})", 60) for seed in range(4)]
    assert all(right for *_, right in passes), passes
    assert passes[-1][:2] == [1, 0]


def test_blocks_nest_and_decorate(console: Console) -> None:
    run(
        console,
        "inner = gangway.program()(steps)\n"
        "def nested(seed):\n"
        "    x = put([seed, 1, 2, 3])\n"
        "    with gangway.program() as block:\n"
        "        with gangway.program() as inside:\n"
        "            y, _ = steps(x, weights)\n"
        "        z = inner(y, weights)\n"
        "    want = expected(expected(np.asarray(x), w)[0], w)\n"
        "    return told(block) + told(inside)[:2] + [same(z, want)]\n",
    )
    passes = [console.do(f"result = nested({seed})", 60) for seed in range(4)]
    assert all(right for *_, right in passes), passes
    assert passes[-1] == [1, 0, NO_ANSWER, 0, 0, True]
    console.do("x = put(range(4)); got = inner(x, weights)")
    assert console.do("result = same(got, expected(np.asarray(x), w))")


def test_a_block_whose_shapes_change_is_another_block(console: Console) -> None:
    run(
        console,
        "def moves(seed, size):\n"
        "    x = put(range(seed, seed + size))\n"
        "    with gangway.program() as block:\n"
        "        y = jax.device_put(jax.device_put(x, second), first)\n"
        "        z = h(jax.device_put(y, second)) if size != 5 else jax.device_put(y, second)\n"
        "    return told(block)[:2] + [same([y, z], [np.asarray(x), np.asarray(x) + 2 * (size != 5)])]\n",
    )
    for seed, size in enumerate([4, 4, 4, 7, 7, 4, 7, 7]):
        launched = console.do(f"result = moves({seed}, {size})", 60)
        assert launched[2], (seed, size, launched)
    assert launched[:2] == [1, 0]
    assert console.do("result = moves(9, 4)")[:2] == [1, 0]
    # The calls say which shapes they take; copies do not, so the same copies are the same block.
    for size in (5, 5, 5):
        assert console.do(f"result = moves(1, {size})")[2]
    run(
        console,
        "def copies(size):\n"
        "    x = put(range(size))\n"
        "    with gangway.program() as block:\n"
        "        y = jax.device_put(jax.device_put(x, second), first)\n"
        "    return told(block)[:2] + [same([y], [np.asarray(x)])]\n",
    )
    assert [console.do(f"result = copies({size})") for size in (4, 4, 6, 300000, 4)][2:] == [
        [1, 0, True]
    ] * 3


def test_arrays_over_several_devices(console: Console) -> None:
    """Their shards are uploaded and copied one by one. The plugin names a list of shards that comes again by an array of
    its own from the second pass on, so the fourth is the first that is as the one before.
    """
    run(
        console,
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "on = [NamedSharding(jax.make_mesh((2,), ('d',), devices=jax.devices()[i : i + 2]), P('d'))\n"
        "      for i in (0, 2)]\n"
        "v = [jax.device_put(np.arange(8, dtype=np.float32), each) for each in on]\n"
        "k = jax.jit(lambda x, v: x + v)\n"
        "def meshes(seed):\n"
        "    x = jax.device_put(np.full(8, seed, np.float32), on[0])\n"
        "    jax.block_until_ready(x)\n"
        "    with gangway.program() as block:\n"
        "        y = x\n"
        "        for i in range(6):\n"
        "            y = jax.device_put(k(y, v[i % 2]), on[(i + 1) % 2])\n"
        "    return told(block) + [same([y], [seed + 6 * np.arange(8)])]\n",
    )
    passes = [console.do(f"result = meshes({seed})", 60) for seed in range(6)]
    assert all(right for *_, right in passes), passes
    assert passes[-1][:3] == [1, 0, NO_ANSWER], passes


@pytest.mark.parametrize("is_known", [False, True], ids=["later", "before"])
def test_a_failure_spoils_what_depends_on_it_ER_2(console: Console, is_known: bool) -> None:
    """Of one block: an argument that turns out to be an error, and another chain of calls beside it. The thread of a
    host callback sends operations of its own, which could end the block's run: it has sent them before the block. And
    an answer to a wait is behind the one that accepts the block's program; bytes that are fetched need not be.
    """
    run(
        console,
        "import threading\n"
        "entered, leave = threading.Event(), threading.Event()\n"
        "def fail(_):\n"
        "    entered.set()\n"
        "    leave.wait(30)\n"
        "    raise ValueError('of the callback')\n"
        "def spoilt(seed, is_known):\n"
        "    x, other = put([seed, 1, 2, 3]), put(range(4))\n"
        "    bad = jax.jit(lambda v: jax.pure_callback(fail, v, v))(x) if seed == 3 else h(x)\n"
        "    if seed == 3: assert entered.wait(30)\n"
        "    if is_known:\n"
        "        leave.set()\n"
        "        try: jax.block_until_ready(bad)\n"
        "        except Exception: pass\n"
        "    with gangway.program() as block:\n"
        "        got, fine = steps(bad, weights), steps(other, weights)\n"
        "    leave.set()\n"
        "    jax.block_until_ready(fine)\n"
        "    return told(block) + [same(fine, expected(np.arange(4.0), w)), got]\n",
    )
    for seed in range(3):
        assert console.do(f"result = spoilt({seed}, False)[:4]", 60)[3]
    console.do(f"kept = spoilt(3, {is_known}); result = kept[:4]", 60)
    assert console.do("result = kept[:4]") == [1, 0, NO_ANSWER, True]
    answer = console.ask("np.asarray(kept[4][0])")
    assert "of the callback" in answer["error"], answer


def test_through_the_proxys_client_it_does_nothing_and_says_so_once(cluster: Cluster) -> None:
    text = (
        "import gangway\ngangway.connect()\nimport jax, warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(2):\n"
        "        with gangway.program() as block:\n"
        "            y = jax.jit(lambda x: x + 1)(1.0)\n"
        "told = [each for each in caught if 'gangway.program' in str(each.message)]\n"
        "print(len(told), told[0].message, 'contextlib' in told[0].filename, float(y), block)\n"
    )
    ended = run_client(text, cluster.port, "ifrt")
    assert ended.returncode == 0, ended.stderr
    assert "1 gangway.program() does nothing here" in ended.stdout, ended.stdout
    assert "False 2.0 ProgramCapture(launches=0" in ended.stdout, ended.stdout
