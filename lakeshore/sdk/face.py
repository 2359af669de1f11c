"""What both faces of a plane share: submitting from anywhere, and hidden plumbing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from anyio import to_thread

from lakeshore.core.bodies import check_size
from lakeshore.core.errors import Refused
from lakeshore.core.settings import DEFAULT as DEFAULT_QUEUE
from lakeshore.core.values import pack

from .address import DEFAULT, find_ca, find_token, late_token, namespace_found, resolve
from .checks import finite
from .choices import Loop, Sync
from .connection import Connection
from .host import Host
from .options import HostOptions
from .submitting import Ahead, ManyResults, read
from .udf import UDF
from .verbs import show_storage


class Face:
    """A plane as a program sees it. Subclasses open and close it."""

    def __init__(
        self,
        address: Any,
        *,
        namespace: str | None,
        token: str | None,
        ca: str | None,
        backend: Loop,
        sync: Sync,
        storage: str | os.PathLike[str] | None,
        retention: float,
        lease: float,
        memory_limit: int | None,
        payload_limit: int,
        connect_timeout: float | None,
    ) -> None:
        self.address: str = resolve(address)
        named = namespace_found(namespace, self.address)
        self.namespace: str = named.value or "default"
        self.asked_for = "" if named.source == DEFAULT and self.remote else self.namespace
        if backend not in ("asyncio", "trio"):
            raise ValueError(f"backend={backend!r}: asyncio or trio")
        if not self.remote and (token is not None or ca is not None):
            raise ValueError("token and ca are for planes on other machines; leave them out for a path")
        self._token: str | None = find_token(self.address, token) if self.remote else None
        self.ca: str | None = find_ca(self.address, ca) if self.remote else None
        if finite("lease", lease) <= 0:
            raise ValueError(f"lease={lease!r}: choose seconds above 0")
        if connect_timeout is not None and finite("connect_timeout", connect_timeout) < 0:
            raise ValueError(f"connect_timeout={connect_timeout!r}: choose seconds, 0 for one try, or None")
        self.connect_timeout = connect_timeout
        self.backend: str = backend
        self._options = HostOptions(
            sync=sync,
            retention=retention,
            lease=lease,
            memory_limit=memory_limit,
            payload_limit=payload_limit,
            storage=storage,
        )
        self._closed = False

    @property
    def remote(self) -> bool:
        """Whether its address is the URL of a head."""
        return "://" in self.address

    @property
    def token(self) -> str:
        """Who asks, as it is known now; empty: nobody in particular."""
        if not self._token and self.remote:
            self._token = late_token(self.address)
        return self._token or ""

    def storage(self) -> str:
        """Where files are by key; empty: under the root of each worker. Blocks this thread."""
        return self._where("")[0]

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def host(self) -> Host:
        """The open plane behind this face; opens it where that is possible."""
        raise NotImplementedError

    def connection(self) -> Connection:
        """The connection to it."""
        raise NotImplementedError

    def connect_to(self, found: Host, made: Callable[[Connection | BaseException], None]) -> None:
        """Connect to an open plane; on its loop."""

        def ready(connection: Connection | BaseException) -> None:
            welcome = getattr(getattr(connection, "session", None), "welcome", None)
            if welcome is not None:
                self.namespace = welcome.namespace  # the token's own, where none was named
            made(connection)

        found.connect(
            self.asked_for,
            ready,
            token=lambda: self.token,
            ca=self.ca,
            patience=self.connect_timeout,
        )

    def packed(self, value: Any) -> bytes:
        """A value for a topic. Raises TypeError for what can't travel, PayloadTooLarge."""
        data = pack(value)
        check_size(data, self.host().options.payload_limit, "the value")
        return data

    def _where(self, queue: str) -> tuple[str, str]:
        """The storage of a queue, and the folder in it for large values. Blocks this thread."""
        connection, verb = self.connection(), show_storage(queue)
        return verb.read(connection.call_blocking(verb.make(connection.number())))

    async def _where_async(self, queue: str) -> tuple[str, str]:
        connection, verb = self.connection(), show_storage(queue)
        return verb.read(await connection.call(verb.make(connection.number())))

    def submit_blocking(self, udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Submit, blocking this thread until it is stored."""
        connection = self.connection()
        submitter = connection.submitter
        message = submitter.submit(udf, args, kwargs, connection.number())
        if submitter.is_large(message):
            message = submitter.stow(message, *self._where(message.queue))
        return read(message, connection.call_blocking(message))

    async def submit_async(self, udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Submit, waiting until it is stored."""
        connection = self.connection()
        submitter = connection.submitter
        message = submitter.submit(udf, args, kwargs, connection.number())
        if submitter.is_large(message):
            place = await self._where_async(message.queue)
            message = await to_thread.run_sync(submitter.stow, message, *place)
        return read(message, await connection.call(message))

    def submit_many_blocking(self, udf: UDF[..., Any], items: Iterable[Any]) -> list[str]:
        """Submit many, blocking this thread."""
        connection = self.connection()
        connection.refuse_to_block()
        many = ManyResults(connection.number())
        submitter = connection.submitter
        parts = Ahead(many.parts(submitter, udf, items))
        for part in parts:
            if any(submitter.is_large(message) for _, message in part):
                part = many.stow(part, submitter, *self._where(udf.queue or DEFAULT_QUEUE))
            if not part:
                continue
            try:
                answer = connection.call_blocking(many.message(part), meanwhile=parts.make)
            except Refused as error:  # the parts before it stand
                many.refused(part, error)
            else:
                many.take(part, answer.results)
        return many.done()

    async def submit_many_async(self, udf: UDF[..., Any], items: Iterable[Any]) -> list[str]:
        """Submit many, waiting for each part."""
        connection = self.connection()
        many = ManyResults(connection.number())
        submitter = connection.submitter
        parts = Ahead(many.parts(submitter, udf, items))
        for part in parts:
            if any(submitter.is_large(message) for _, message in part):
                place = await self._where_async(udf.queue or DEFAULT_QUEUE)
                part = await to_thread.run_sync(many.stow, part, submitter, *place)
            if not part:
                continue
            try:
                answer = await connection.call(many.message(part), meanwhile=parts.make)
            except Refused as error:  # the parts before it stand
                many.refused(part, error)
            else:
                many.take(part, answer.results)
        return many.done()
