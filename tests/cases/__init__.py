"""What plain JAX programs do, as functions named `case_*`, each returning a pytree of numpy arrays.

`tests/run_cases.py` runs them on one backend; `tests/test_jax.py` compares backends. A case knows
nothing of the backend that it runs on, needs eight devices in all, takes those of a mesh from
`topology`, and checks with `assert` whatever is not a number. Everything that it makes is a function
of constants and of the number of devices in a mesh.
"""
