"""What the core needs from outside, as Protocols. Each has one conformance suite in
`lakeshore.testing` that every implementation passes, other people's too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from .away import Away
from .rows import Batch, Committed, Query


class Store(Protocol):
    """Keeps rows. One batch is in flight at a time; reads may overlap it.

    `done` is called once, on the loop that opened the store (or at once, inside the call), with
    the answer or with the exception. A failed commit stored nothing.
    """

    @property
    def full(self) -> str:
        """Why new submits must be refused (a memory limit, say); empty while there is room."""
        ...

    async def open(self) -> None:
        """Make ready: create, migrate, check. Raises `StoreError`."""
        ...

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Store a batch, whole or not at all."""
        ...

    def read(self, query: Query, done: Callable[[Any], None]) -> None:
        """Answer one query from what is committed."""
        ...

    async def aclose(self) -> None:
        """Let go of everything. What was committed stays."""
        ...


class Link(Protocol):
    """One end of an ordered two-way connection of messages. Never waits and never fails:
    what is sent after the other end closed goes nowhere."""

    def send(self, message: Any, /) -> None:
        """Hand over one message, in order."""
        ...

    def close(self) -> None:
        """No more messages, either way. The other end is told, once."""
        ...


class LinkEnd(Link, Protocol):
    """A link's end that also hears: who listens sets both attributes before anything is sent.

    `receive` is called with each message, on this end's loop; `closed` once, when the other end has
    closed, after every message it had sent. An end that closes itself hears nothing more.
    """

    receive: Callable[[Any], None]
    closed: Callable[[], None]


class Outlet(Protocol):
    """Where an effect goes once its commit is done."""

    def deliver(self, message: Any, /) -> None:
        """Take one message that may leave now."""
        ...


class Stored(Struct, frozen=True):
    """One object of a storage: its whole key, bytes, and when it was last written (since 1970)."""

    key: str
    size: int
    modified_at: float


class Staged(Protocol):
    """A file or folder on its way to `key`: as near as it gets without being seen there."""

    key: str

    def publish(self) -> None:
        """Be there, whole, in place of what was: readers see the one or the other. Once; may be tried
        again where it failed."""
        ...

    def discard(self) -> None:
        """Never be there. Of what is published already this takes nothing away."""
        ...


class Storage(Protocol):
    """Files by key, all in one place. Calls block; they are made on threads, several at a time.

    Keys are whole and clean, as `core.keys.file_key` gives them. Every call may raise `StorageFailed`,
    after trying again where that makes sense.
    """

    url: str  # where it is, for people: without secrets

    def workplace(self) -> Path:
        """A folder of this machine, made, for files on their way in: from where `stage` costs least."""
        ...

    def fetch(self, key: str, scratch: Path) -> Path:
        """A local path of the file or folder at a key, for reading only: where it lies, in a cache, or
        a copy in the folder `scratch` (made if need be). Raises `KeyNotFound`."""
        ...

    def stage(self, key: str, source: Path, mark: str) -> Staged:
        """Take a finished local file or folder, which is the storage's from now on, as what the key will
        be: everything that takes long happens here. `mark` tells attempts apart."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store bytes whole, in place of what was."""
        ...

    def get(self, key: str) -> bytes:
        """Bytes as they were put. Raises `KeyNotFound`."""
        ...

    def remove(self, key: str) -> None:
        """Delete a file or a whole folder; done where there is none."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """What is under a prefix (empty: everything), in the order of keys, Lakeshore's own left out
        unless the prefix names it."""
        ...


class Files(Protocol):
    """What one attempt reads and writes by key, as its runner sees it. Calls block, for threads.

    `clear` says whether the attempt is the current one still; it may wait for the head's word.
    """

    def publish(self, value: Any, clear: Callable[[], bool]) -> None:
        """Let be seen what a yielded value names, before the value is. Raises what can't be done."""
        ...

    def complete(self, value: Any, clear: Callable[[], bool], *, generator: bool = False) -> Any:
        """Let be seen all that was written, and give the body's result. Raises what can't be done."""
        ...

    def close(self) -> None:
        """The attempt is over, or another's: nothing more is published. Does not wait; for any thread."""
        ...

    def discard(self) -> None:
        """The attempt is over: what is not published never will be."""
        ...


class Values(Protocol):
    """Large packed values, in storages. Calls block, for threads."""

    def put(self, data: bytes, storage: str, folder: str) -> bytes:
        """Put one away; the packed reference that stands for it. Raises StorageFailed."""
        ...

    def get(self, away: Away) -> bytes:
        """Bring it back. Raises StorageFailed."""
        ...
