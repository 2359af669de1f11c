"""Addresses of heads: `tcp://host:port`, `tls://host:port` and `unix:///path`."""

from __future__ import annotations

import os
import re

from msgspec import Struct

DEFAULT_PORT = 7420
SCHEMES = ("tcp", "tls", "unix")

_SHAPES = '"tcp://host:port", "tls://host:port" or "unix:///path"'
_HOST_AND_PORT = re.compile(r"(?P<host>\[[^\[\]/@]+\]|[^\[\]:/@?#\s]+)(?::(?P<port>[0-9]{1,5}))?/?")


class Address(Struct, frozen=True):
    """Where a head listens. `host` and `port` are empty for a Unix socket, `path` for the others."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(text: str) -> Address:
    """An address out of what a user writes; the port is 7420 where none is given.

    A relative path of a Unix socket is taken from the current folder.
    Raises: ValueError for what is no address.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"{text!r} is not an address: write {_SHAPES}")
    if scheme == "unix":
        if not rest or "\0" in rest:
            raise ValueError(f"{text!r} names no socket: write unix:///path/to/socket")
        return Address("unix", path=os.path.abspath(rest))
    match = _HOST_AND_PORT.fullmatch(rest)
    if match is None:
        raise ValueError(
            f"{text!r} is not an address: write {scheme}://host:port, IPv6 as {scheme}://[::1]:port"
        )
    port = int(match["port"] or DEFAULT_PORT)
    if port > 65535:
        raise ValueError(f"{text!r}: a port is at most 65535")
    return Address(scheme, match["host"].strip("[]"), port)
