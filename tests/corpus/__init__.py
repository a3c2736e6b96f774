"""JAX programs over all eight devices of an island, as models and libraries write them, each a function named `case_*`
that returns a pytree of numpy arrays (tests/test_corpus.py runs them).

A program's values depend only on constants, so that they can be compared bit by bit with the same program in one
process. LAPACK's functions are missing there: `linear_algebra` compares its results with NumPy's itself.
"""
