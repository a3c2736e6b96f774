"""Makes the threads of jaxlib's client wake less often.

Two of its habits cost wake-ups (measured with jaxlib 0.10.2):

- A thread looks every 100 us for arrays to delete, for as long as the connection lasts: 7,700
  wake-ups and 0.16 s of CPU in each second, also of an idle script. The kernel may delay a timer by
  its thread's slack, and a thread starts with the slack of the one that starts it. So the client is
  made by a thread with a large slack. What is deleted then leaves within SLACK_NS, or with the next
  request, which is sent at once.
- Its gRPC hands each event of a socket to a pool of threads: 22 wake-ups for one `float(f(x))`.
  Without the experiment of gRPC that does so, the thread that waits for an answer reads the socket
  itself, and operations take 0.8 to 0.9 of the time (docs/internals/transports.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

SLACK_NS = 4_000_000
PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 29, 30  # of <linux/prctl.h>
# A copy of gRPC reads it when it is first used, and never again. So it has no effect where jaxlib's
# was used before (jax.distributed), and an effect on all later uses of that copy. A version that
# does not know the experiment logs that: look for it when NEWEST_TESTED_JAXLIB is raised.
GRPC_VARIABLE, GRPC_SETTING = "GRPC_EXPERIMENTS", "-event_engine_client"


@contextlib.contextmanager
def few_wakes() -> Iterator[None]:
    """Make jaxlib's client inside. What the user has set for gRPC stays."""
    with _slack_for_new_threads(), _grpc_reads_where_it_waits():
        yield


@contextlib.contextmanager
def _slack_for_new_threads() -> Iterator[None]:
    """Where the system has no such setting, new threads have the usual slack."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:  # not Linux
        yield
        return
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    usual = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)
    prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_TIMERSLACK, usual, 0, 0, 0)


@contextlib.contextmanager
def _grpc_reads_where_it_waits() -> Iterator[None]:
    if GRPC_VARIABLE in os.environ:
        yield
        return
    os.environ[GRPC_VARIABLE] = GRPC_SETTING
    try:
        yield
    finally:
        # At once, so that few child processes and other copies of gRPC see it.
        if os.environ.get(GRPC_VARIABLE) == GRPC_SETTING:
            os.environ.pop(GRPC_VARIABLE, None)
