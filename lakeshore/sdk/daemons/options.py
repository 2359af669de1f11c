"""What a daemon is asked to be; travels from the command line to its parent, and on to its child."""

from __future__ import annotations

import os
import socket

import msgspec
from msgspec import Struct

from .early import Spawned


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
    capture: bool = True
    runner: str = "process"
    memory: int | None = None
    gpus: int = 0
    recycle_jobs: int | None = None
    recycle_age: float | None = None
    recycle_memory: int | None = None


class Inheritance(Struct, frozen=True):
    """What a command line leaves to the parent that it becomes.

    Attributes:
        control: a descriptor: our end of the control socket of a child that waits for its charge.
        child: its process; 0: there is none.
    """

    options: DaemonOptions
    control: int = -1
    child: int = 0


class Charge(Struct, frozen=True):
    """What a parent tells its child first."""

    worker: bytes
    options: DaemonOptions


def hand_over(options: DaemonOptions, child: Spawned | None) -> int:
    """A descriptor that the program which this process becomes next may read the options from."""
    from tempfile import TemporaryFile  # slow, and neither a parent nor a child has a use for it

    left = Inheritance(options)
    if child is not None:
        child.control.set_inheritable(True)
        left = Inheritance(options, child.control.fileno(), child.pid)
    file = TemporaryFile()  # noqa: SIM115 - it is for the next program
    file.write(msgspec.json.encode(left))
    file.flush()
    descriptor = os.dup(file.fileno())
    file.close()
    os.set_inheritable(descriptor, True)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def take_over(descriptor: int) -> tuple[DaemonOptions, Spawned | None]:
    """The options behind a descriptor, which is closed, and a child that waits for its charge."""
    with os.fdopen(descriptor, "rb") as file:
        left = msgspec.json.decode(file.read(), type=Inheritance)
    if not left.child:
        return left.options, None
    control = socket.socket(fileno=left.control)
    control.set_inheritable(False)
    return left.options, Spawned(control, left.child)


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
