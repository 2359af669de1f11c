"""What belongs to the plane and to no namespace: its providers, its tokens, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .actor import Actor
from .engine import Engine
from .errors import BadRequest, Conflict, Forbidden, Refused
from .ids import text_of
from .intake import refusal
from .messages import (
    AddProvider,
    Answer,
    CreateToken,
    ListProviders,
    ListTokens,
    PatchProvider,
    RemoveProvider,
    RemoveToken,
    ShowProvider,
    Status,
)
from .naming import check_label, listed, unknown
from .notes import Used
from .providing import (
    check_provider_changes,
    check_provider_kind,
    check_provider_name,
    describe_provider,
)
from .roles import ROLES
from .rows import Loaded, MetaRow, ProviderRow, TokenRow

if TYPE_CHECKING:
    from .head import Head
    from .space import Space

REQUESTS = (  # what peers pass on to it
    AddProvider, ListProviders, ShowProvider, PatchProvider, RemoveProvider,
    CreateToken, ListTokens, RemoveToken, Status,
)  # fmt: skip

_NOTE_EVERY = 60.0  # seconds between two notes that a token was used
_HASH = 32  # bytes of a SHA-256


class Office(Actor):
    """The one desk of a plane.

    Args:
        head: whose namespaces it counts, and makes where a token opens a new one.

    Attributes:
        plane: the id of the store, made when it was first opened.
        on_removed: called with the id of a token once its removal is stored.
    """

    def __init__(self, engine: Engine, head: Head) -> None:
        super().__init__(engine)
        self.head = head
        self.plane = ""
        self.on_removed: Callable[[bytes], None] = lambda id: None
        self._providers: dict[str, ProviderRow] = {}
        self._tokens: dict[bytes, TokenRow] = {}  # by hash
        self._new: list[ProviderRow | TokenRow] = []
        self.handlers |= {
            AddProvider: self._on_add_provider,
            ListProviders: self._on_list_providers,
            ShowProvider: self._on_show_provider,
            PatchProvider: self._on_patch_provider,
            RemoveProvider: self._on_remove_provider,
            CreateToken: self._on_create_token,
            ListTokens: self._on_list_tokens,
            RemoveToken: self._on_remove_token,
            Used: self._on_used,
            Status: self._on_status,
        }

    def flush(self) -> None:
        for row in self._new:
            self.engine.batch.put(row)
        self._new.clear()

    def restore(self, loaded: Loaded) -> None:
        """Take back what is stored. A store that was never opened gets its id."""
        self._providers = {row.name: row for row in loaded.providers}
        self._tokens = {row.hash: row for row in loaded.tokens}
        self.plane = next((row.value for row in loaded.meta if row.name == "plane"), "")
        if not self.plane:
            self.plane = text_of(self.engine.new_id())
            self.engine.batch.put(MetaRow("plane", self.plane))

    def _store(self, row: ProviderRow | TokenRow) -> None:
        self._new.append(row)
        self.engine.touch(self)

    def _refuse(self, message: Any, peer: Any, error: Refused) -> None:
        self.engine.emit(peer, refusal(message.req, error))

    # providers

    def provider(self, name: str) -> ProviderRow | None:
        """A provider by its name or by the text of its id."""
        row = self._providers.get(name)
        if row is None and len(name) == 26:
            return next((r for r in self._providers.values() if text_of(r.id) == name.upper()), None)
        return row

    def no_provider(self, name: str) -> Refused:
        """There is no such provider; says which names are near."""
        remedy = f"make it with `lakeshore providers add {name} --kind KIND`, or q.providers.add() in Python"
        return unknown(f"provider {name!r}", name, self._providers, remedy)

    def _named(self, message: Any, peer: Any) -> ProviderRow | None:
        row = self.provider(message.name)
        if row is None:
            self._refuse(message, peer, self.no_provider(message.name))
        return row

    def _show(self, message: Any, peer: Any, row: ProviderRow) -> None:
        self.engine.emit(peer, Answer(message.req, describe_provider(row, text_of(row.id))))

    def _on_add_provider(self, message: AddProvider, peer: Any) -> None:
        error: Refused | None = None
        try:
            check_provider_name(message.name)
            check_provider_kind(message.kind)
            check_provider_changes({"config": message.config, "max": message.max})
        except (TypeError, ValueError) as wrong:
            error = BadRequest(str(wrong))
        if error is None and message.name in self._providers:
            error = Conflict(
                f"provider {message.name!r} exists already: change it with `lakeshore providers patch "
                f"{message.name}`, or choose another name"
            )
        if error is not None:
            self._refuse(message, peer, error)
            return
        row = ProviderRow(self.engine.new_id(), message.name, message.kind, message.config, message.max)
        self._put_provider(row)
        self._show(message, peer, row)

    def _put_provider(self, row: ProviderRow) -> None:
        self._providers[row.name] = row
        self._store(row)

    def _on_list_providers(self, message: ListProviders, peer: Any) -> None:
        rows = [describe_provider(row, text_of(row.id)) for _, row in sorted(self._providers.items())]
        self.engine.emit(peer, Answer(message.req, rows))

    def _on_show_provider(self, message: ShowProvider, peer: Any) -> None:
        row = self._named(message, peer)
        if row is not None:
            self._show(message, peer, row)

    def _on_patch_provider(self, message: PatchProvider, peer: Any) -> None:
        row = self._named(message, peer)
        if row is None:
            return
        try:
            changes = check_provider_changes(message.changes)
        except (TypeError, ValueError) as wrong:
            self._refuse(message, peer, BadRequest(str(wrong)))
            return
        changed = msgspec.structs.replace(row, **changes)
        if changed != row:
            self._put_provider(changed)
        self._show(message, peer, changed)

    def _on_remove_provider(self, message: RemoveProvider, peer: Any) -> None:
        row = self._named(message, peer)
        if row is None:
            return
        users = [
            f"{queue.name} (namespace {space.name})"
            for space in self.head.spaces.values()
            for queue in space.queues.values()
            if queue.settings.provider == row.name
        ]
        if users:
            error = Conflict(
                f"queues name provider {row.name!r}, {listed(users)}: give them another "
                'one or none first (`lakeshore queues patch NAME --provider ""`)'
            )
            self._refuse(message, peer, error)
            return
        del self._providers[row.name]
        self._store(msgspec.structs.replace(row, removed=True))
        self._show(message, peer, row)

    # tokens

    def token(self, hash: bytes) -> TokenRow | None:
        """Whom a token lets in, by the SHA-256 of its text. Notes that it was used."""
        row = self._tokens.get(hash)
        if row is not None and self._is_news(row, self.engine.wall()):
            self.engine.tell(self, Used(hash))
        return row

    def token_of(self, id: bytes) -> TokenRow | None:
        """A token by its id."""
        return next((row for row in self._tokens.values() if row.id == id), None) if id else None

    def _is_news(self, row: TokenRow, at: float) -> bool:
        return row.last_used_at is None or not 0 <= at - row.last_used_at < _NOTE_EVERY

    def _on_used(self, message: Used, sender: Any) -> None:
        row = self._tokens.get(message.hash)
        if row is not None and self._is_news(row, self.engine.at):
            self._put_token(msgspec.structs.replace(row, last_used_at=self.engine.at))

    def _put_token(self, row: TokenRow) -> None:
        self._tokens[row.hash] = row
        self._store(row)

    def _on_create_token(self, message: CreateToken, peer: Any) -> None:
        namespace = message.namespace or peer.space.name
        error: Refused | None = None
        if not _sees(peer, namespace):
            error = _other_namespace(peer)
        elif message.token_role not in ROLES:
            error = BadRequest(f"role={message.token_role!r}: a token has one of {', '.join(ROLES)}")
        elif len(message.hash) != _HASH:
            error = BadRequest("a token is known by the SHA-256 of its text, 32 bytes: send that")
        elif message.hash in self._tokens:
            error = Conflict("this token exists already: make another one")
        else:
            try:
                check_label("a namespace", namespace)
                check_label("a token's name", message.name, empty=True)
            except ValueError as wrong:
                error = BadRequest(str(wrong))
        if error is not None:
            self._refuse(message, peer, error)
            return
        self.head.space(namespace)  # it exists from now on
        id, at = self.engine.new_id(), self.engine.at
        row = TokenRow(id, message.hash, namespace, message.token_role, at, None, message.name)
        self._put_token(row)
        self.engine.emit(peer, Answer(message.req, _describe_token(row)))

    def _on_list_tokens(self, message: ListTokens, peer: Any) -> None:
        if message.namespace and not _sees(peer, message.namespace):
            self._refuse(message, peer, _other_namespace(peer))
            return
        rows = [row for row in self._visible(peer) if message.namespace in ("", row.namespace)]
        self.engine.emit(peer, Answer(message.req, [_describe_token(row) for row in rows]))

    def _visible(self, peer: Any) -> list[TokenRow]:
        """The tokens that a peer may see, oldest first."""
        return sorted((row for row in self._tokens.values() if _sees(peer, row.namespace)), key=_by_id)

    def _on_remove_token(self, message: RemoveToken, peer: Any) -> None:
        visible = self._visible(peer)
        found = [row for row in visible if text_of(row.id) == message.name.upper()]
        found = found or [row for row in visible if row.name and row.name == message.name]
        if len(found) == 1:
            row = found[0]
            del self._tokens[row.hash]
            self._store(msgspec.structs.replace(row, removed=True))
            self.engine.emit(_Hook(self), row.id)
            self.engine.emit(peer, Answer(message.req, _describe_token(row)))
        elif found:
            ids = listed(text_of(row.id) for row in found)
            error = Conflict(f"{len(found)} tokens are called {message.name!r}: name one by its id ({ids})")
            self._refuse(message, peer, error)
        else:
            names = [row.name for row in visible if row.name]
            remedy = "`lakeshore tokens list` shows those that there are"
            self._refuse(message, peer, unknown(f"token {message.name!r}", message.name, names, remedy))

    # the plane

    def _on_status(self, message: Status, peer: Any) -> None:
        spaces = list(self.head.spaces.values()) if _owns(peer) else [peer.space]
        about = {name: value() if callable(value) else value for name, value in self.head.about.items()}
        wall = self.engine.wall()
        status = {
            **about,
            "plane": self.plane,
            "startedAt": self.head.started_at,
            "uptimeS": max(0.0, wall - self.head.started_at),
            "storeError": str(self.engine.store_error or ""),
            **_counted(spaces),
        }
        self.engine.send(peer, Answer(message.req, status))  # also while nothing can be stored


class _Hook:
    """An outlet to whoever cuts the links of removed tokens."""

    __slots__ = ("_office",)

    def __init__(self, office: Office) -> None:
        self._office = office

    def deliver(self, message: bytes) -> None:
        """The removal is stored."""
        self._office.on_removed(message)


def _counted(spaces: list[Space]) -> dict[str, int]:
    queues = [queue for space in spaces for queue in space.queues.values()]
    return {
        "namespaces": len(spaces),
        "queues": len(queues),
        "queued": sum(len(queue.backlog) for queue in queues),
        "running": sum(len(queue.running) for space in spaces for queue in space.by_id.values()),
        "workers": sum(not member.gone for space in spaces for member in space.members.values()),
    }


def _owns(peer: Any) -> bool:
    """Whether it speaks for the whole plane, not for one namespace."""
    return getattr(peer, "role", "plane") == "plane"


def _sees(peer: Any, namespace: str) -> bool:
    return _owns(peer) or peer.space.name == namespace


def _other_namespace(peer: Any) -> Refused:
    return Forbidden(
        f"this token is of namespace {peer.space.name!r}: tokens of other namespaces are for the owner of "
        "the whole plane, who uses the head's own token"
    )


def _by_id(row: TokenRow) -> bytes:
    return row.id


def _describe_token(row: TokenRow) -> dict[str, Any]:
    return {
        "id": text_of(row.id),
        "name": row.name,
        "namespace": row.namespace,
        "role": row.role,
        "createdAt": row.created_at,
        "lastUsedAt": row.last_used_at,
    }
