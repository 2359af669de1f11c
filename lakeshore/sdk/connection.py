"""A program's connection to a plane of its own process, from any thread or loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from anyio.lowlevel import checkpoint

from lakeshore.core.backend import Backend, Lane, Parker, current_backend, running_loop
from lakeshore.core.client import Client
from lakeshore.core.errors import PlaneClosed, Refused, WouldDeadlock, rebuild
from lakeshore.core.intake import refusal
from lakeshore.core.messages import Refusal
from lakeshore.core.running import CURRENT

if TYPE_CHECKING:
    from .session import Session
    from .submitting import Submitter


class Connection:
    """Asks over one client, which lives on the plane's loop.

    Args:
        client: already connected.
        backend: the plane's loop.
        submitter: what builds submits for this plane.
    """

    def __init__(self, client: Client, backend: Backend, submitter: Submitter) -> None:
        self._client, self._backend, self.submitter = client, backend, submitter
        self.session: Session | None = None  # what keeps it linked, where the plane may be elsewhere
        self.number = client.number  # of the next request
        self._thread = get_ident()
        self._ending = threading.Lock()
        self._lane: Lane[tuple[Callable[..., Any], tuple[Any, ...]]] = Lane(backend.post, _run)

    @property
    def here(self) -> bool:
        """Whether this is the plane's own loop thread."""
        return get_ident() == self._thread

    async def call(
        self, message: Any, id: bytes = b"", *, meanwhile: Callable[[], None] | None = None
    ) -> Any:
        """Ask and wait, in a coroutine of any loop. Cancelling withdraws the request.

        `message` carries a fresh `number` as its `req`; `id` names the invocation it is about. Where
        another process may have to answer, `meanwhile` is called once the request has left.
        """
        if get_ident() != self._thread:
            return await self._call_across(message, id, meanwhile)
        if meanwhile is None or self.session is None:
            waiting, answered = self._backend.wait()
        else:
            parker = self._backend.parker()
            waiting, answered = _ahead(parker, meanwhile), parker.set
        self._client.ask(message, answered)
        try:
            answer = await waiting
        except BaseException:
            self._client.drop(message.req, id)
            raise
        if type(answer) is Refusal:
            raise error_of(answer)
        return answer

    async def _call_across(self, message: Any, id: bytes, meanwhile: Callable[[], None] | None = None) -> Any:
        backend = current_backend()
        parker = backend.parker()

        def reply(answer: Any) -> None:
            try:
                backend.post(lambda: parker.set(answer))
            except RuntimeError:  # the asking loop has ended
                return

        self.do(self._client.ask, message, reply)
        try:
            if meanwhile is not None:
                meanwhile()
            answer = await parker.wait()
        except BaseException:
            self._withdraw(message.req, id)
            raise
        if type(answer) is Refusal:
            raise error_of(answer)
        return answer

    def call_blocking(
        self,
        message: Any,
        *,
        timeout: float | None = None,
        id: bytes = b"",
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        """Ask and block this thread. TimeoutError withdraws the request. `meanwhile` is called once it is on
        its way.

        Raises: WouldDeadlock on the plane's loop thread and inside an asynchronous body.
        """
        self.refuse_to_block()
        done = threading.Lock()
        done.acquire()
        box: list[Any] = []

        def reply(answer: Any) -> None:
            box.append(answer)
            done.release()

        self.do(self._client.ask, message, reply)
        try:
            if meanwhile is not None:
                meanwhile()
            arrived = done.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, _LONGEST)))
        except BaseException:
            self._withdraw(message.req, id)
            raise
        if not arrived:
            self._withdraw(message.req, id)
            raise TimeoutError(no_answer(timeout))
        answer = box[0]
        if type(answer) is Refusal:
            raise error_of(answer)
        return answer

    def _withdraw(self, req: int, id: bytes) -> None:
        """Nobody waits any more; that the plane has ended meanwhile is no news to who gave up."""
        with suppress(PlaneClosed):
            self.do(self._client.drop, req, id)

    def refuse_to_block(self) -> None:
        """Raise where blocking would stop the loop that answers."""
        if get_ident() == self._thread:
            raise WouldDeadlock(
                "this blocks, and this is the event loop that would answer: use the async verb "
                "(await f.asubmit(...), or the same verb of AsyncDispatch)"
            )
        running = CURRENT.get()
        if running is not None and running.on_loop and running_loop():  # not in a thread it waits for
            raise WouldDeadlock(
                "this blocks, and this body runs on its worker's event loop: use the async verb "
                "(await f.asubmit(...), or the same verb of AsyncDispatch), or a plain def body"
            )

    def do(self, call: Callable[..., Any], *args: Any) -> None:
        """Run a function on the plane's loop, soon. PlaneClosed where it has ended."""
        try:
            self._lane.put((call, args))
        except RuntimeError:
            self.loop_ended()
            raise PlaneClosed("the plane was closed: open it again to go on") from None

    def client(self) -> Client:
        """The client, for those on the plane's loop."""
        return self._client

    def close(self) -> None:
        """Hang up; on the plane's loop."""
        if self.session is not None:
            self.session.close()
        else:
            self._client.link.close()

    def hang_up(self) -> None:
        """`close`, from anywhere; a plane that has ended needs none."""
        with suppress(PlaneClosed):
            self.do(self.close)

    def loop_ended(self) -> None:
        """The plane's loop runs no more: answer what was handed to it too late."""
        with self._ending:
            self._client.closed(refusal(0, PlaneClosed("the plane was closed: open it again to go on")))
            self._lane.drain()


_LONGEST = threading.TIMEOUT_MAX


async def _ahead(parker: Parker[Any], meanwhile: Callable[[], None]) -> Any:
    for _ in range(2):  # the request leaves by then: trio runs what is ready in any order
        await checkpoint()
    meanwhile()
    return await parker.wait()


def _run(item: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    call, args = item
    call(*args)


def no_answer(timeout: float | None) -> str:
    """What a wait that ran out says."""
    return (
        f"no answer within {timeout} s; the invocation goes on as it was, and q.jobs.why(id) says what it "
        "waits for"
    )


def error_of(answer: Refusal) -> Refused:
    """A refusal, as the exception it stands for."""
    return rebuild(answer.kind, answer.message, answer.details)
