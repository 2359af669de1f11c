"""The few things the runtime needs of an event loop."""

from __future__ import annotations

import contextlib
import gc
import socket
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

import lakeshore as dls
from lakeshore.core.backend import TrioBackend, current_backend


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_cancelled_timers_do_not_pile_up() -> None:
    backend = current_backend()
    assert isinstance(backend, TrioBackend)
    for _ in range(10):
        backend.later(3600, lambda: None)
    for _ in range(10_000):
        backend.later(3600, lambda: None).cancel()
    assert 10 <= len(backend._timers._heap) < 200


@contextlib.contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends that never wait."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        yield here, there


@pytest.mark.anyio
@pytest.mark.parametrize("early", [True, False])
async def test_a_socket_is_watched_until_that_is_cancelled(early: bool) -> None:
    backend = current_backend()
    with sockets() as (here, there):
        got: list[bytes] = []
        heard = anyio.Event()

        def call() -> None:
            nonlocal heard
            got.append(here.recv(1))
            heard.set()

        if early:  # before the backend is served
            watch = backend.readable(here, call)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.serve)
            if not early:
                await anyio.wait_all_tasks_blocked()
                watch = backend.readable(here, call)
            there.send(b"abc")  # one is taken each time: what is left is told again
            with anyio.fail_after(20):
                while len(got) < 3:
                    heard = anyio.Event()
                    await heard.wait()
            watch.cancel()
            watch.cancel()
            there.send(b"d")
            await anyio.wait_all_tasks_blocked()
            assert got == [b"a", b"b", b"c"]
            watch = backend.readable(here, call)
            with anyio.fail_after(20):
                heard = anyio.Event()
                await heard.wait()
            watch.cancel()
            tasks.cancel_scope.cancel()
        assert got[3:] == [b"d"]


@pytest.mark.anyio
async def test_a_watch_may_be_cancelled_by_its_own_call_or_before_it_began() -> None:
    backend = current_backend()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        await anyio.wait_all_tasks_blocked()
        with sockets() as (here, there):
            calls: list[str] = []

            def once() -> None:
                calls.append("once")
                watch.cancel()

            watch = backend.writable(here, once)
            backend.readable(there, lambda: calls.append("never")).cancel()
            here.send(b"x")
            await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            assert calls == ["once"]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_both_directions_of_a_socket_are_watched_at_once() -> None:
    backend = current_backend()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        with sockets() as (here, there):
            done = {"read": backend.parker(), "write": backend.parker()}
            reading = backend.readable(here, lambda: done["read"].set(here.recv(10)))
            writing = backend.writable(here, lambda: done["write"].set(None))
            there.send(b"x")
            with anyio.fail_after(20):
                await done["write"].wait()
                assert await done["read"].wait() == b"x"
            reading.cancel()
            writing.cancel()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_is_called_back_does_not_see_who_asked() -> None:
    backend = current_backend()
    seen: ContextVar[str] = ContextVar("seen", default="nobody")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        await anyio.wait_all_tasks_blocked()
        with sockets() as (here, there):
            done = backend.parker()
            seen.set("who asked")
            watch = backend.readable(here, lambda: done.set(seen.get()))
            there.send(b"x")
            with anyio.fail_after(20):
                assert await done.wait() == "nobody"
            watch.cancel()
        tasks.cancel_scope.cancel()


def test_a_body_lives_as_long_as_its_invocations() -> None:
    with dls.Dispatch(":memory:") as q:

        def make() -> tuple[str, weakref.ref[Any]]:
            def body() -> int:
                return 7

            return q.submit(body), weakref.ref(body)

        inv, body = make()
        gc.collect()
        assert body() is not None
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(inv) == 7
        again = q.retry(inv)
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(again) == 7
        assert q.jobs.prune(older_than=0) == 2
        gc.collect()
        assert body() is None


def test_no_loop_runs_here() -> None:
    with pytest.raises(RuntimeError, match="no event loop runs here: call this from a coroutine"):
        current_backend()
