"""`lakeshore login` and `lakeshore logout`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Any

from cyclopts import Parameter

from . import plane, printing
from .errors import Failed, UsageError
from .parameters import Json

_MOST = 4096  # bytes read for a token


def login(
    *,
    insecure: bool = False,
    unchecked: Annotated[bool, Parameter(name="--no-check")] = False,
    json: Json = False,
) -> None:
    """Keep a token for a head, in a file that only you can read.

    The token is asked for without showing it, or read from standard input.

    Example: lakeshore login --url tls://head.example.org:7420 < token.txt

    Args:
        insecure: Let the token cross a network in the clear, at a tcp:// address.
        unchecked: Keep it without asking the head whether it is right.
    """
    from lakeshore.sdk import address, credentials

    named = plane.named()
    if named.token is not None:
        raise UsageError(
            "login takes no --token: what is on a command line, every user of this machine can read; run it "
            "without and paste the token, or pipe it in (lakeshore login < token.txt)"
        )
    url = _head(named.url)
    ca, namespace = address.find_ca(url, named.ca), named.namespace
    if namespace is not None:
        address.namespace_of(namespace)
    with address.plain_allowed(url) if insecure else nullcontext():
        address.check_private(url)
        token = credentials.check_token(_read_token(url))
        who = {} if unchecked else _checked(url, namespace, token, ca)
    credentials.save(url, credentials.Login(token, namespace or "", ca or "", insecure))
    found = {"url": url, "namespace": namespace, "token": credentials.hint(token), **who}
    printing.said(f"logged in to {url}{_told(who) or ' (unchecked)' * unchecked}", found, json)


def logout(*, all: bool = False, json: Json = False) -> None:
    """Forget the token of a head. It stays valid: `lakeshore tokens remove` ends it.

    Example: lakeshore logout --url tls://head.example.org:7420

    Args:
        all: Those of every head.
    """
    from lakeshore.sdk import credentials

    url = None if all else _head(plane.named().url)
    dropped = credentials.forget(url)
    if url is not None and not dropped:
        kept = ", ".join(credentials.saved().logins) or "none"
        raise Failed(f"there is no login at {url} (there are: {kept})")
    printing.said(f"logged out of {', '.join(dropped) or 'nothing'}", {"urls": dropped}, json)


def _head(named: str | None) -> str:
    """The URL that is meant: named, in the environment, or of the last login."""
    from lakeshore.sdk import address

    found = address.address_found(named)
    if "://" not in str(found.value):
        raise UsageError("name the head: --url tls://host:7420 (a path needs no login)")
    return str(found.value)


def _read_token(url: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return sys.stdin.read(_MOST).strip() if sys.stdin else ""  # closed, it is None
    from getpass import getpass

    try:
        return getpass(f"Token for {url}: ").strip()
    except EOFError:
        return ""


def _checked(url: str, namespace: str | None, token: str, ca: str | None) -> dict[str, Any]:
    """Ask the head who we are."""
    from lakeshore import Dispatch

    with Dispatch(url, namespace=namespace, token=token, ca=ca, connect_timeout=0) as q:
        q.status()
        session = q.connection().session
        welcome = session.welcome if session is not None else None
        return {"namespace": welcome.namespace, "role": welcome.role} if welcome is not None else {}


def _told(who: dict[str, Any]) -> str:
    if not who:
        return ""
    if who["role"] == "plane":
        return " as the owner of the whole plane"
    return f" as {who['role']} of the namespace {who['namespace']}"
