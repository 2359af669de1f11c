"""`lakeshore serve`."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lakeshore.sdk.choices import Loop, Sync

from . import plane
from .errors import Failed, UsageError, explain
from .logs import LogFormat, logging_to_stderr
from .parameters import Flag, Seconds, number, whole

if TYPE_CHECKING:
    from lakeshore.sdk.manifest import Change, Manifest
    from lakeshore.sdk.serving import Serving

log = logging.getLogger("lakeshore")

Lease = Annotated[float, Parameter(converter=number(1.0, 86400.0))]
Bytes = Annotated[int, Parameter(converter=whole(1024, 1 << 30))]
Path = Annotated[str, Parameter(allow_leading_hyphen=True)]


def serve(
    *,
    config: Path | None = None,
    store: Path | None = None,
    listen: list[str] | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    backend: Loop = "asyncio",
    sync: Sync = "full",
    auto_create: Flag = False,
    lease: Lease = 30.0,
    retention: Seconds = 604800.0,
    payload_limit: Bytes = 16777216,
    storage: Path | None = None,
    log_format: LogFormat = "text",
    insecure_loopback: Flag = False,
    insecure: Flag = False,
    release: Flag = False,
) -> None:
    """Be the head: keep the queues of a store, and let clients and workers in.

    It runs until SIGTERM or SIGINT, commits, and tells everybody to come back; jobs elsewhere go on.

    Example: lakeshore serve --store /srv/lakeshore/plane.db --config lakeshore.yaml

    Args:
        config: A lakeshore.yaml that is applied at the start, as lakeshore apply does.
        store: The file; else plane.db in this machine's folder of LAKESHORE_HOME.
        listen: Where it takes links: tcp://127.0.0.1:7420, or any tcp:// and tls:// addresses, each after
            a --listen of its own.
        tls_cert: The certificate for tls://, and those between it and its root, in PEM.
        tls_key: Its key, in PEM, without a passphrase.
        backend: The event loop.
        sync: full survives a power cut, normal the end of the process.
        auto_create: Make queues on first use.
        lease: Seconds that a worker may be silent before its work goes to others.
        retention: Seconds that ended jobs are kept.
        payload_limit: Bytes that arguments, a result or a frame may take.
        storage: Where files are by key: a folder, or a URL such as s3://bucket/prefix; else under the root of
            each worker. What a lakeshore.yaml says goes before it.
        log_format: How it logs, on stderr.
        insecure_loopback: Ask nobody on this machine for a token.
        insecure: Listen beyond this machine without TLS: only where the network is yours alone.
        release: Serve nothing: clear the mark that the store is served, so that any process may host it.
    """
    from lakeshore.sdk.address import default_path, resolve
    from lakeshore.sdk.serving import LISTEN, Serving, check

    _unused(plane.named())
    path = default_path() if store is None else resolve(store)
    if "://" in path or path == ":memory:":
        raise UsageError(f"a head keeps its queues in a file: --store {store} is none")
    if release:
        _release(path)
        return
    serving = Serving(
        store=path,
        listen=tuple(listen or (LISTEN,)),
        tls_cert=tls_cert,
        tls_key=tls_key,
        sync=sync,
        auto_create=auto_create,
        retention=retention,
        lease=lease,
        payload_limit=payload_limit,
        storage=storage,
        insecure_loopback=insecure_loopback,
        insecure=insecure,
    )
    check(serving)
    prepare = None if config is None else _applying(config, path)
    with logging_to_stderr(log_format):
        try:
            _run(serving, backend, prepare)
        except Exception as error:
            if log_format == "text":
                raise
            status, line = explain(error)
            log.error("%s", line)
            raise SystemExit(status) from None


def _run(serving: Serving, backend: Loop, prepare: Callable[[], Awaitable[None]] | None) -> None:
    import anyio

    from lakeshore.sdk.serving import notify, serve

    async def started(host: Any, addresses: list[str]) -> None:
        log.info("serving %s on %s", serving.store, ", ".join(addresses))
        notify("READY=1")

    _open_more_files()
    anyio.run(lambda: serve(serving, prepare=prepare, started=started), backend=backend)
    log.info("stopped: what was accepted is in %s", serving.store)


def _applying(config: str, path: str) -> Callable[[], Awaitable[None]]:
    """What makes the plane what a file says; the file is read now."""
    from lakeshore.sdk.address import namespace_of

    from .apply import loaded, meant_namespace

    manifest = loaded(config)
    namespace = namespace_of(meant_namespace(manifest, plane.named().namespace))

    async def apply() -> None:
        await _apply(config, manifest, path, namespace)

    return apply


async def _apply(config: str, manifest: Manifest, path: str, namespace: str) -> None:
    from lakeshore import AsyncDispatch
    from lakeshore.sdk.manifest import apply_async

    def told(change: Change) -> None:
        if change.outcome != "unchanged":
            log.log(logging.ERROR if change.outcome == "failed" else logging.INFO, "%s", change)

    async with AsyncDispatch(path, namespace=namespace) as q:
        changes = await apply_async(q, manifest, told=told)
    for note in manifest.notes:
        log.warning("%s", note)
    failed = sum(change.outcome == "failed" for change in changes)
    if failed:
        raise Failed(f"{config}: {failed} of {len(changes)} failed; the rest stands, and nothing is served")


def _release(path: str) -> None:
    from lakeshore.sdk.serving import release

    if release(path):
        print(f"{path} is not marked as served any more")
    else:
        print(f"{path} was not marked as served")


def _unused(named: plane.Named) -> None:
    given = {"--url": named.url, "--token": named.token, "--ca": named.ca}
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"serve is a head and asks none: {option} is of no use (--store, --listen)")
    namespace = named.namespace
    if namespace is not None:
        from lakeshore.sdk.address import namespace_of

        namespace_of(namespace)


def _open_more_files() -> None:
    """As many connections as the system lets this process have."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # not everywhere
        log.info("the limit of open files stays as it is (pid %d)", os.getpid())
