"""The verbs of what belongs to the whole plane: its providers and its tokens."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.errors import NotFound
from lakeshore.core.naming import check_label
from lakeshore.core.providing import check_provider_changes, check_provider_kind, check_provider_name
from lakeshore.core.roles import ROLES

from . import records
from .address import namespace_of
from .verbs import Verb, storable

PREFIX = "lks_"  # so that a token is known for one, wherever it turns up


def add_provider(
    name: str, kind: str, config: dict[str, Any] | None, max: int | None
) -> Verb[records.ProviderInfo]:
    """Create a provider."""
    check_provider_name(name)
    check_provider_kind(kind)
    given = check_provider_changes(storable({"config": {} if config is None else config, "max": max}))
    return Verb(lambda req: m.AddProvider(req, name, kind, given["config"], max), _provider)


def list_providers() -> Verb[list[records.ProviderInfo]]:
    """Providers by name."""
    return Verb(
        lambda req: m.ListProviders(req), lambda answer: [records.provider_of(row) for row in answer.value]
    )


def show_provider(name: str) -> Verb[records.ProviderInfo]:
    """One provider."""
    _named("provider", name)
    return Verb(lambda req: m.ShowProvider(req, name), _provider)


def patch_provider(name: str, changes: dict[str, Any]) -> Verb[records.ProviderInfo]:
    """Change a provider."""
    _named("provider", name)
    if not changes:
        raise TypeError("providers.patch changes what it is given, and it was given nothing")
    checked = check_provider_changes(storable(changes))
    return Verb(lambda req: m.PatchProvider(req, name, checked), _provider)


def remove_provider(name: str) -> Verb[records.ProviderInfo]:
    """Delete a provider."""
    _named("provider", name)
    return Verb(lambda req: m.RemoveProvider(req, name), _provider)


def create_token(role: str, namespace: str | None, name: str) -> Verb[records.NewToken]:
    """Make a token. Its text stays here; the plane gets its hash."""
    if role not in ROLES:
        raise ValueError(f"role={role!r}: a token has one of {', '.join(ROLES)}")
    space = "" if namespace is None else namespace_of(namespace)
    check_label("a token's name", name, empty=True)
    token = PREFIX + secrets.token_urlsafe(32)
    hash = hashlib.sha256(token.encode()).digest()
    return Verb(
        lambda req: m.CreateToken(req, hash, role, space, name),
        lambda answer: records.new_token_of(answer.value, token),
    )


def list_tokens(namespace: str | None) -> Verb[list[records.TokenInfo]]:
    """Tokens, oldest first."""
    space = "" if namespace is None else namespace_of(namespace)
    return Verb(
        lambda req: m.ListTokens(req, space), lambda answer: [records.token_of(row) for row in answer.value]
    )


def remove_token(token: str) -> Verb[records.TokenInfo]:
    """Revoke a token."""
    _named("token", token)
    return Verb(lambda req: m.RemoveToken(req, token), lambda answer: records.token_of(answer.value))


def _named(what: str, name: str) -> None:
    """What can't be a name names no such thing: NotFound."""
    try:
        check_label(f"a {what}'s name or id", name)
    except ValueError as error:
        raise NotFound(str(error)) from None


def _provider(answer: Any) -> records.ProviderInfo:
    return records.provider_of(answer.value)
