"""Plain JAX programs as functions named `case_*`, each of which returns a pytree of numpy arrays.

`tests/run_cases.py` runs them on one backend; `tests/test_jax.py` compares backends. A case does
not depend on its backend, needs eight devices in all, takes those of a mesh from `topology`, and
asserts everything that is not a number. Its values depend only on constants and on the number of
devices in a mesh.
"""
