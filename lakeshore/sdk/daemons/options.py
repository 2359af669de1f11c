"""What a daemon is asked to be; travels from the command line to its parent, and on to its child."""

from __future__ import annotations

import os
import socket
from tempfile import TemporaryFile

import msgspec
from msgspec import Struct


class DaemonOptions(Struct, frozen=True):
    """Checked options of `lakeshore daemon start`.

    Attributes:
        address: as `address.resolve` gives it.
        namespace: the one named; empty: the token's own.
        version: of this package.
        hooks: `module:name` of a `Hooks`, or empty.
    """

    address: str
    name: str
    namespace: str = ""
    token: str = ""
    ca: str = ""
    version: str = ""
    queues: tuple[str, ...] = ()
    slots: int = 1
    labels: dict[str, str] = {}
    backend: str = "asyncio"
    allow_pickle: bool = False
    strict_source: bool = False
    trust: tuple[str, ...] = ()
    hooks: str = ""
    grace: float = 30.0
    log_format: str = "text"


class Charge(Struct, frozen=True):
    """What a parent tells its child first."""

    worker: bytes
    options: DaemonOptions


def hand_over(options: DaemonOptions) -> int:
    """A descriptor that a program started next may read the options from."""
    file = TemporaryFile()  # noqa: SIM115 - it is for the next program
    file.write(msgspec.json.encode(options))
    file.flush()
    descriptor = os.dup(file.fileno())
    file.close()
    os.set_inheritable(descriptor, True)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def take_over(descriptor: int) -> DaemonOptions:
    """The options behind a descriptor, which is closed."""
    with os.fdopen(descriptor, "rb") as file:
        return msgspec.json.decode(file.read(), type=DaemonOptions)


def send_charge(control: socket.socket, charge: Charge) -> None:
    """Tell a child what it is."""
    data = msgspec.json.encode(charge)
    control.sendall(len(data).to_bytes(4, "big") + data)


def receive_charge(control: socket.socket) -> Charge:
    """Hear what one is. Raises EOFError where the parent has ended."""
    return msgspec.json.decode(_exactly(control, int.from_bytes(_exactly(control, 4), "big")), type=Charge)


def _exactly(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            raise EOFError("the parent of this daemon has ended")
        data += part
    return data
