"""Compiled functions on one device: control flow, gradients, random numbers, donation, chains."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cases.arrays import numbers


def case_jit():
    f = jax.jit(lambda x, y: (jnp.tanh(x @ y), {"sum": x.sum(), "count": jnp.int32(x.size)}))
    return jax.device_get(f(numbers(32, 48), numbers(48, 16)))


def case_jit_many_arguments_and_results():
    f = jax.jit(lambda xs: [x * (i + 1) for i, x in enumerate(xs)])
    return jax.device_get(f([numbers(7) + i for i in range(100)]))


def case_jit_static_and_cached():
    traces = []

    @functools.partial(jax.jit, static_argnums=1)
    def f(x, count):
        traces.append(count)
        return sum(x**i for i in range(count))

    results = [np.asarray(f(numbers(10), count)) for count in (2, 3, 2, 3)]
    assert traces == [2, 3]
    return results


def case_jit_without_arguments():
    return np.asarray(jax.jit(lambda: jnp.arange(12).reshape(3, 4))())


def case_jit_returns_its_argument():
    x = jax.device_put(numbers(9))
    same, other = jax.jit(lambda x: (x, x + 1))(x)
    return np.asarray(same), np.asarray(other), np.asarray(x)


def case_jit_on_another_device():
    device = jax.devices()[5]
    x = jax.device_put(numbers(20), device)
    y = jax.jit(lambda x: jnp.sort(x))(x)
    assert y.devices() == {device}
    return np.asarray(y)


def case_eager():
    x = jnp.asarray(numbers(50))
    return jax.device_get(
        [
            jnp.sort(x),
            jnp.argmax(x),
            jnp.linalg.norm(x),
            x.reshape(5, 10).T @ x[:5],
            jnp.where(x > 0, x, 0),
        ]
    )


def case_grad():
    def loss(params, x):
        hidden = jnp.tanh(x @ params["w1"] + params["b1"])
        return jnp.mean((hidden @ params["w2"]) ** 2)

    params = {"w1": numbers(8, 16) / 400, "b1": numbers(16) / 400, "w2": numbers(16, 4) / 400}
    value, gradients = jax.jit(jax.value_and_grad(loss))(params, numbers(32, 8) / 100)
    hessian = jax.jit(jax.hessian(lambda x: jnp.sum(x**3)))(numbers(4) / 100)
    return jax.device_get([value, gradients, hessian])


def case_vmap():
    f = jax.jit(jax.vmap(lambda a, b: jnp.dot(a, b) + jnp.max(a), in_axes=(0, None)))
    return np.asarray(f(numbers(12, 6), numbers(6)))


def case_scan():
    def body(carry, x):
        carry = 0.9 * carry + x
        return carry, carry.sum()

    return jax.device_get(
        jax.jit(lambda c, xs: jax.lax.scan(body, c, xs))(numbers(5), numbers(64, 5))
    )


def case_while_loop():
    def collatz(n):
        def body(state):
            n, steps = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

        return jax.lax.while_loop(lambda state: state[0] != 1, body, (n, 0))[1]

    return np.asarray(jax.jit(jax.vmap(collatz))(jnp.arange(1, 60)))


def case_cond():
    f = jax.jit(lambda p, x: jax.lax.cond(p, lambda x: x * 2, lambda x: x - 5, x))
    g = jax.jit(lambda i, x: jax.lax.switch(i, [jnp.sin, jnp.cos, lambda x: -x], x))
    x = numbers(10)
    return jax.device_get([f(True, x), f(False, x), *(g(i, x) for i in range(3))])


def case_random():
    @jax.jit
    def draw(key):
        a, b, c, d = jax.random.split(key, 4)
        return (
            jax.random.normal(a, (100,)),
            jax.random.randint(b, (50,), 0, 1000),
            jax.random.permutation(c, 40),
            jax.random.bernoulli(d, 0.3, (64,)),
        )

    key = jax.random.fold_in(jax.random.key(42), 7)
    return jax.device_get(
        [draw(key), jax.random.uniform(jax.random.key(3), (10,)), jax.random.key_data(key)]
    )


def case_random_rbg():
    return np.asarray(jax.random.normal(jax.random.key(1, impl="rbg"), (33,)))


def case_dtypes():
    f = jax.jit(lambda x: (x * 3 - x // 2, x.sum()))
    names = ["int8", "uint8", "int16", "int32", "uint32", "float16", "bfloat16", "float32"]
    logical = jax.jit(lambda a, b: (a & b, a ^ b, ~a))(np.arange(8) % 2 == 0, np.arange(8) % 3 == 0)
    return jax.device_get([[f(jnp.arange(1, 20).astype(name)) for name in names], logical])


def case_fft_and_convolution():
    image = numbers(2, 3, 16, 16) / 400
    kernel = numbers(4, 3, 3, 3) / 400
    convolved = jax.jit(lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"))(image, kernel)
    return jax.device_get([jax.jit(jnp.fft.fft)(numbers(64).astype(np.complex64)), convolved])


def case_remat():
    def block(x, w):
        return jnp.tanh(x @ w)

    def loss(ws, x):
        for i in range(4):
            x = jax.checkpoint(block)(x, ws[i])
        return (x**2).sum()

    return np.asarray(jax.jit(jax.grad(loss))(numbers(4, 8, 8) / 1000, numbers(5, 8) / 400))


def case_custom_vjp():
    @jax.custom_vjp
    def clip(x):
        return x

    clip.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
    return np.asarray(jax.jit(jax.grad(lambda x: (clip(x) ** 2).sum()))(numbers(10)))


def case_donation():
    step = jax.jit(lambda x: x * 1.5 + 1, donate_argnums=0)
    x = first = jax.device_put(numbers(256, 256))
    for _ in range(20):
        x = step(x)
    assert first.is_deleted()
    return np.asarray(x)


def case_use_after_donation():
    x = jax.device_put(numbers(100))
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    for use in (lambda: np.asarray(x), lambda: x + 1, lambda: jax.jit(jnp.sin)(x)):
        try:
            use()
        except (RuntimeError, ValueError) as error:
            assert "deleted" in str(error) or "donated" in str(error), error
        else:
            raise AssertionError("a donated array could be used")
    return np.asarray(y)


def case_donated_twice():
    x = jax.device_put(numbers(10))
    try:
        jax.block_until_ready(jax.jit(lambda a, b: (a + 1, b + 2), donate_argnums=(0, 1))(x, x))
    except (RuntimeError, ValueError) as error:
        assert "donate" in str(error) or "deleted" in str(error), error
    else:
        raise AssertionError("one array was donated as two arguments")
    return np.asarray(jax.device_put(numbers(10)) + 1)


def case_training():
    optimizer = optax.adam(1e-2)

    def loss(params, x, y):
        return jnp.mean((jnp.tanh(x @ params[0]) @ params[1] - y) ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    params = jax.device_put([numbers(8, 32) / 1000, numbers(32, 1) / 1000])
    state = optimizer.init(params)
    x = numbers(64, 8) / 400
    y = np.sin(x.sum(axis=1, keepdims=True))
    losses = []
    for _ in range(30):
        params, state, value = step(params, state, x, y)
        losses.append(value)
    losses = jax.device_get(losses)
    assert losses[-1] < 0.7 * losses[0], losses
    return losses, jax.device_get(params)


def case_10000_steps_undonated():
    step = jax.jit(lambda x: x * 0.9999 + 0.5)
    x = jax.device_put(numbers(64))
    for _ in range(10_000):
        x = step(x)
    return np.asarray(x)


def case_512_results_alive():
    step = jax.jit(lambda x: x + 1)
    xs = [jax.device_put(numbers(1024))]
    for _ in range(512):
        xs.append(step(xs[-1]))
    return np.stack([np.asarray(x[:4]) for x in xs[::64]]), np.asarray(xs[-1])
