"""How a link to a head is made."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Any

import anyio

from lakeshore.core.backend import Backend
from lakeshore.core.errors import Unreachable
from lakeshore.core.framing import MESSAGE_LIMIT

from .address import Address, parse
from .channel import LinkSocket, PlainChannel, owned, tune
from .places import LONGEST
from .stream import BEAT, StreamLink
from .tls import Handshake, TlsChannel, client_context, seen_by_client

_Place = tuple[int, Any]  # a family, and what `connect` takes
_SOONER = 0.9  # the part of a beat after which this end asks, so that a head need not ask each of thousands


async def dial(
    address: str | Address,
    backend: Backend,
    *,
    ca: str | os.PathLike[str] | None = None,
    timeout: float = 5.0,
    beat: float = BEAT,
    limit: int = MESSAGE_LIMIT,
) -> StreamLink:
    """Connect to a head. Set the link's `closed`, then its `receive`.

    Args:
        address: `tcp://`, `tls://` or `unix://`.
        backend: the running loop.
        ca: a file of certificates to trust, for `tls://`; the system's by default.
        timeout: seconds for all of it.
        beat, limit: see `StreamLink`.

    Raises: Unreachable; ValueError for what can't be an address.
    """
    place = parse(address) if isinstance(address, str) else address
    with anyio.move_on_after(timeout):
        sock = await _connect_any(place, await _resolve(place), timeout)
        tune(sock)
        channel = PlainChannel(sock) if place.scheme != "tls" else await _secure(sock, place, backend, ca)
        return StreamLink(channel, backend, beat=_SOONER * beat, limit=limit, peer=str(place))
    raise Unreachable(
        f"{place} did not answer within {timeout:g} s: is the head overloaded, or a firewall between?"
    )


async def _secure(
    sock: LinkSocket, place: Address, backend: Backend, ca: str | os.PathLike[str] | None
) -> TlsChannel:
    try:
        context = await anyio.to_thread.run_sync(client_context, ca)  # it reads many files
        channel = TlsChannel(sock, context, place.host)
        parker = backend.parker()
        handshake = Handshake(channel, backend, parker.set)
        try:
            error = await parker.wait()
        finally:
            handshake.cancel()
    except BaseException:
        sock.close()
        raise
    if error is None:
        return channel
    sock.close()
    raise Unreachable(seen_by_client(place, error)) from error


async def _resolve(place: Address) -> list[_Place]:
    if place.scheme == "unix":
        if len(os.fsencode(place.path)) > LONGEST:
            raise Unreachable(f"{place} can't be reached (its path is longer than {LONGEST} bytes)")
        return [(socket.AF_UNIX, place.path)]
    try:
        found = await anyio.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unreachable(
            f"{place}: no machine is called {place.host!r} ({why}): check the address"
        ) from error
    every: dict[int, list[_Place]] = {}
    for family, _, _, _, where in found:
        every.setdefault(int(family), []).append((int(family), where))
    return [each for each in chain(*_in_turn(every.values())) if each is not None]


def _in_turn(families: Iterable[list[_Place]]) -> Iterable[tuple[_Place | None, ...]]:
    """One of IPv6, one of IPv4, and so on: where one of them does not work the other is tried at once."""
    return zip_longest(*families)


async def _connect_any(place: Address, ways: list[_Place], timeout: float) -> LinkSocket:
    until, failed = anyio.current_time() + timeout, OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    for number, (family, where) in enumerate(ways):
        share = (until - anyio.current_time()) / (len(ways) - number)
        sock = owned(socket.socket(family, socket.SOCK_STREAM))
        try:
            with anyio.move_on_after(share):
                await _connect(sock, where)
                return sock
        except OSError as error:
            failed = error
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise Unreachable(_why(place, failed)) from failed


async def _connect(sock: LinkSocket, where: Any) -> None:
    error = sock.connect_ex(where)
    if error == errno.EINPROGRESS:
        await anyio.wait_writable(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    elif error == errno.EAGAIN:  # a Unix socket whose backlog is full: its head does not run
        await anyio.sleep_forever()
    if error:
        raise OSError(error, os.strerror(error))


def _why(place: Address, error: OSError) -> str:
    if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
        return f"nothing listens at {place}: start a head there (`lakeshore serve`), or check the address"
    if error.errno == errno.EACCES and place.scheme == "unix":
        return f"{place} belongs to another user: run as its owner, or ask for a tcp:// address"
    if error.errno == errno.ETIMEDOUT:
        return f"{place} did not answer in time: is the head overloaded, or a firewall between?"
    return f"{place} can't be reached ({error.strerror}): check the address and the network"
