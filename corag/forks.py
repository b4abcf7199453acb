"""What a fork of the process waits for: the child finds no lock held, and no model at work, by threads it lacks."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

PATIENCE_S = 60.0
"""Seconds that a fork waits; after these the child may hang, but the parent does not."""

_RENEWED: weakref.WeakSet[Any] = weakref.WeakSet()
_LOCKS: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_held: list[threading.Lock] = []
_turn = threading.Condition(threading.RLock())
_at_work = 0
_is_forking = False


def lock_for_forks() -> threading.Lock:
    """Return a lock that forks wait for. Whoever holds it acquires no other lock and starts no `work`."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def renewed_lock() -> threading.RLock:
    """Return a lock for whatever may take long, which is open in a child, and what it protects perhaps done by half."""
    lock = threading.RLock()
    _RENEWED.add(lock)
    return lock


@contextmanager
def work() -> Iterator[None]:
    """Let forks wait for the end of the block, in which a library may use threads and locks of its own."""
    global _at_work
    with _turn:
        _turn.wait_for(lambda: not _is_forking, PATIENCE_S)
        _at_work += 1
    try:
        yield
    finally:
        with _turn:
            _at_work -= 1
            _turn.notify_all()


def _before() -> None:
    global _is_forking
    _turn.acquire()
    _is_forking = True
    _turn.wait_for(lambda: not _at_work, PATIENCE_S)
    _held[:] = [lock for lock in list(_LOCKS) if lock.acquire(timeout=PATIENCE_S)]


def _after() -> None:
    global _is_forking
    while _held:
        _held.pop().release()
    _is_forking = False
    _turn.notify_all()
    _turn.release()


def _in_child() -> None:
    global _at_work, _turn
    _after()
    _at_work, _turn = 0, threading.Condition(threading.RLock())
    for lock in list(_RENEWED):
        lock._at_fork_reinit()  # as the modules `threading` and `logging` do
    for one in gc.get_objects() if sys.version_info < (3, 12) else ():
        if type(one) is cached_property:
            one.lock = threading.RLock()  # type: ignore[attr-defined]
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # the threads of its pool are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
