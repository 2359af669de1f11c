"""`lakeshore serve`: a head that other processes and machines reach."""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from lakeshore.core.backend import current_backend
from lakeshore.core.door import hash_of
from lakeshore.core.errors import PlaneFailed, StoreError, StoreLocked
from lakeshore.core.framing import message_limit
from lakeshore.transports.address import DEFAULT_PORT, parse
from lakeshore.transports.listener import Listener
from lakeshore.transports.tls import server_context

from . import credentials, hosts
from .address import is_loopback
from .host import Host
from .options import HostOptions

log = logging.getLogger("lakeshore")

LISTEN = f"tcp://127.0.0.1:{DEFAULT_PORT}"
_STOPPING = 8.0  # seconds that closing may take, so that all of it is over in ten
_LONGEST = 9.5  # and until the process ends at any rate


class Serving(Struct, frozen=True):
    """What a head is to be.

    Attributes:
        store: an absolute path.
        listen: where it takes links from other machines: `tcp://` and `tls://` addresses.
        tls_cert, tls_key: files in PEM, for `tls://`.
        auto_create: make queues on first use.
        storage: where files are by key: a folder or a URL; None: under the root of each worker.
        insecure_loopback: nobody needs a token who connects from this machine.
        insecure: listen beyond this machine without TLS.
    """

    store: str
    listen: tuple[str, ...] = (LISTEN,)
    tls_cert: str | None = None
    tls_key: str | None = None
    sync: str = "full"
    auto_create: bool = False
    retention: float = 604800.0
    lease: float = 30.0
    payload_limit: int = 16777216
    storage: str | None = None
    insecure_loopback: bool = False
    insecure: bool = False


def check(serving: Serving) -> None:
    """Refuse what would be no safe head, before anything is opened.

    Raises: ValueError.
    """
    places = [parse(text) for text in serving.listen]
    certified = bool(serving.tls_cert and serving.tls_key)
    if bool(serving.tls_cert) != bool(serving.tls_key):
        raise ValueError("a certificate goes with its key: pass both --tls-cert and --tls-key")
    if certified and not any(place.scheme == "tls" for place in places):
        raise ValueError(
            "--tls-cert and --tls-key are of no use here: nothing listens with TLS: pass --listen "
            f"tls://0.0.0.0:{DEFAULT_PORT}"
        )
    for text, place in zip(serving.listen, places, strict=True):
        if place.scheme == "tls" and not certified:
            raise ValueError(f"{text}: TLS needs a certificate and its key: pass --tls-cert and --tls-key")
        if place.scheme == "tcp" and not is_loopback(place.host) and not serving.insecure:
            raise ValueError(
                f"{text}: beyond this machine a head listens with TLS: write {text.replace('tcp', 'tls', 1)} "
                "with --tls-cert and --tls-key, or pass --insecure where the network is yours alone"
            )


async def serve(
    serving: Serving,
    *,
    prepare: Callable[[], Awaitable[None]] | None = None,
    started: Callable[[Host, list[str]], Awaitable[None]] | None = None,
    signals: bool = True,
    task_status: TaskStatus[list[str]] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until a signal or a cancel.

    Args:
        prepare: called once the plane is open and before anybody can reach it by TCP; an `AsyncDispatch` of
            `serving.store` is the plane then.
        started: called once it listens, with the host and the addresses.
        signals: SIGINT and SIGTERM end it; a second one, or ten seconds, end the process.
        task_status: told the addresses once it listens.

    Raises: ValueError, StoreError, CannotListen; what `prepare` and `started` raise; PlaneFailed where a
        bug ended it.
    """
    check(serving)
    tls = _tls(serving)
    backend = current_backend()
    host = _host(serving)
    errors: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        running = anyio.CancelScope(shield=True)
        tasks.start_soon(_backend, backend.serve, running)
        ended = backend.parker()
        host.on_failure = host.on_moved = lambda: ended.set(None)
        listeners: list[Listener] = []
        try:
            try:
                await host.open(backend, tasks)
                hosts.register(host)
                if signals:
                    await tasks.start(_watch, lambda: ended.set(None))
                if prepare is not None:
                    await prepare()
                addresses = _listen(host, serving, tls, listeners)
                if started is not None:
                    await started(host, addresses)
                task_status.started(addresses)
                await ended.wait()
            finally:
                await _close(host, listeners)
        except Exception as error:  # raised below, out of the task group, which would wrap it
            errors.append(error)
        finally:
            running.cancel()
            tasks.cancel_scope.cancel()
    if errors:
        raise errors[0]
    if host.failure is not None:
        raise PlaneFailed(f"the plane ended on a bug in Lakeshore: {host.failure!r}; it can be started again")
    if host.moved:
        raise StoreError(f"another process has taken {serving.store} over: was its lock file removed?")


def release(path: str) -> bool:
    """Clear the mark that a head has left in its store, so that any process may host it; whether there was
    one.

    Raises: StoreLocked while a process hosts it; StoreError.
    """
    from lakeshore.store import sqlite
    from lakeshore.store.lock import StoreLock

    if not os.path.isfile(path):
        return sqlite.release(path)  # which says so
    with StoreLock(path):
        return sqlite.release(path)


def _host(serving: Serving) -> Host:
    options = HostOptions(
        sync=serving.sync,
        retention=serving.retention,
        lease=serving.lease,
        payload_limit=serving.payload_limit,
        storage=serving.storage,
    )
    found = hosts.claim(serving.store)
    if found is not None:
        if isinstance(found, Host):
            hosts.release(found)
        raise StoreLocked(f"{serving.store} is open in this process already: close it first", os.getpid())
    try:
        host = Host(serving.store, options, served=True, auto_create=serving.auto_create)
        host.machine = hash_of(credentials.machine_token())
    except BaseException:
        hosts.gone(serving.store)
        raise
    return host


def _tls(serving: Serving) -> ssl.SSLContext | None:
    if serving.tls_cert and serving.tls_key:
        return server_context(serving.tls_cert, serving.tls_key)
    return None


def _listen(host: Host, serving: Serving, tls: ssl.SSLContext | None, listeners: list[Listener]) -> list[str]:
    """Take links at every address; which they are, with their ports."""
    plane = host.plane
    assert plane is not None
    reception = plane.reception
    assert reception is not None
    for text in serving.listen:
        place = parse(text)
        trusted = place.scheme == "unix" or (serving.insecure_loopback and is_loopback(place.host))
        came: Any = partial(reception.came, trusted=trusted)
        context = tls if place.scheme == "tls" else None
        limit = message_limit(serving.payload_limit)
        listeners.append(Listener(place, host.backend, came, context, limit=limit))
    addresses = [str(listener.address) for listener in listeners]
    plane.head.about["listen"] += addresses
    return addresses


async def _close(host: Host, listeners: list[Listener]) -> None:
    """Commit, and tell the peers to come back."""
    with anyio.CancelScope(shield=True) as scope:
        scope.deadline = anyio.current_time() + _STOPPING
        for listener in listeners:
            await listener.aclose()
        await host.aclose(patience=0.0)


async def _backend(serve: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
    with scope:
        await serve()


async def _watch(stop: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        task_status.started()
        stopping = False
        async for number in received:
            for each in (signal.SIGINT, signal.SIGTERM):  # from now on one ends the process
                signal.signal(each, signal.SIG_DFL)
            if stopping:  # it came before that
                os.kill(os.getpid(), number)
                continue
            stopping = True
            log.info("stopping on %s", signal.Signals(number).name)
            _give_up_after(_LONGEST)
            notify("STOPPING=1")
            stop()


def _give_up_after(seconds: float) -> None:
    """End the process then, whatever holds it up: what was acknowledged is on disk."""

    def say() -> None:  # on a thread of its own: it may be the log that holds everything up
        log.error("stopping took %g s: the store will be opened as after a crash", seconds)

    for when, what in ((seconds, say), (seconds + 0.2, partial(os._exit, 1))):
        timer = threading.Timer(when, what)
        timer.daemon = True
        timer.start()


def notify(state: str) -> None:
    """Tell the service manager, where there is one (`sd_notify(3)`)."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect("\0" + place[1:] if place[0] == "@" else place)
            sock.send(state.encode())
    except OSError as error:
        log.warning("the service manager was not told %s at %s: %s", state, place, error)


__all__: Sequence[str] = ["LISTEN", "Serving", "check", "notify", "release", "serve"]
