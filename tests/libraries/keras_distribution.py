"""Keras' distribution API, which looks devices up by the names that they give: its own tests of the JAX backend, which
are in its wheel, and a language model trained in parallel by data, then by a map of layouts.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
import pytest
from keras import distribution, layers

WORDS, LENGTH, WIDTH = 32, 12, 16
TESTS = "keras.src.backend.jax.distribution_lib_test"
draw = np.random.default_rng(0)
text = draw.integers(WORDS, size=(64, 1)) + np.arange(LENGTH + 1) * draw.integers(1, 4, (64, 1))
text = (text % WORDS).astype(np.int32)


class Passed:
    """Counts the tests that passed."""

    count = 0

    def pytest_runtest_logreport(self, report):
        self.count += report.when == "call" and report.passed


def model():
    words = layers.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH, name="words")(words)
    told = layers.MultiHeadAttention(4, 4, use_bias=False, name="attention")(
        x, x, use_causal_mask=True
    )
    x = layers.LayerNormalization(name="norm")(layers.Add()([x, told]))
    x = layers.Dense(4 * WIDTH, activation="gelu", name="up")(x)
    x = layers.Dropout(0.1, seed=3)(x)
    return keras.Model(words, layers.Dense(WORDS, name="down")(x))


def trained(how):
    keras.utils.set_random_seed(7)
    with how.scope():
        made = model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
        ran = made.fit(text[:, :-1], text[:, 1:], batch_size=32, epochs=3, verbose=0)
        specs = {v.path: tuple(v.value.sharding.spec) for v in made.variables if "kernel" in v.path}
        predicted = made.predict(text[:, :-1], verbose=0)
        found = {"losses": ran.history["loss"], "weights": made.get_weights()}
        return {**found, "predicted": predicted}, specs


passed = Passed()
status = pytest.main(["-q", "-p", "no:cacheprovider", "--pyargs", TESTS], [passed])
assert status == 0 and passed.count > 10, (status, passed.count)
tests = passed.count

names = distribution.list_devices()
by_data, _ = trained(distribution.DataParallel(devices=names))
mesh = distribution.DeviceMesh((2, 4), ("batch", "model"), names)
layouts = distribution.LayoutMap(mesh)
layouts["words/embeddings"] = ("model", None)
layouts["up/kernel"] = (None, "model")
layouts["down/kernel"] = ("model", None)
layouts["attention/.*(query|key|value).*kernel"] = (None, "model", None)
by_layout, specs = trained(distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch"))
assert specs["down/kernel"] == ("model", None), specs
