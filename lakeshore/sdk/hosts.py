"""The planes that this process has open, one for each address, shared by all who use it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .address import MEMORY
from .latch import Latch

if TYPE_CHECKING:
    from .host import Host

_lock = threading.Lock()
_hosts: dict[str, Host] = {}  # that are open in this process, by address
_busy: dict[str, Latch] = {}  # addresses that are being opened or closed in this process


def claim(address: str, thread: int = 0) -> Host | Latch | None:
    """The open plane of an address in this process, with one more user.

    A latch: another is opening or closing it; wait for it, then ask again. None: it is the caller's to
    open on loop thread `thread`, who then calls `register`, or `gone` on failing.
    """
    if address == MEMORY:
        return None
    with _lock:
        host = _hosts.get(address)
        if host is not None:
            host.users += 1
            return host
        latch = _busy.get(address)
        if latch is None:
            _busy[address] = Latch(thread)
        return latch


def register(host: Host) -> None:
    """A plane was opened, for its first user."""
    host.users = 1
    if host.address != MEMORY:
        with _lock:
            _hosts[host.address] = host
        gone(host.address)


def release(host: Host) -> bool:
    """A user is done with a plane; whether it was the last, who is to end it."""
    with _lock:
        host.users -= 1
        last = host.users <= 0 and not host.closed
        if last:
            _retire(host)
        return last


def retire(host: Host) -> None:
    """The plane takes no new users: it is about to end."""
    with _lock:
        _retire(host)


def _retire(host: Host) -> None:
    if not host.closed:
        host.closed = True
        if _hosts.get(host.address) is host:
            del _hosts[host.address]
            _busy[host.address] = Latch(host.thread)


def gone(address: str) -> None:
    """Opening an address, or closing it, is over."""
    with _lock:
        latch = _busy.pop(address, None)
    if latch is not None:
        latch.set()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _hosts.clear()
    _busy.clear()


os.register_at_fork(after_in_child=_after_fork)
