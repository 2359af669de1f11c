"""The workers of a namespace, as an operator asks for them: by id or by name, live or ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .engine import Engine, store_failed
from .errors import Conflict, Refused
from .ids import parse, text_of
from .intake import refusal
from .member import Member
from .messages import Answer, DrainWorker, Exec, ListWorkers, PleaseDrain, RemoveWorker, ShowWorker
from .naming import listed, unknown
from .notes import Removal, Show, Start
from .rows import ListWorkers as StoredWorkers
from .rows import WorkerRow

if TYPE_CHECKING:
    from .space import Space

Found = Member | WorkerRow


class Crew:
    """The desk for workers of one namespace; runs in its space's turns."""

    def __init__(self, engine: Engine, space: Space) -> None:
        self.engine, self.space = engine, space
        space.handlers |= {
            ListWorkers: self.on_list,
            ShowWorker: self.on_show,
            DrainWorker: self.on_drain,
            RemoveWorker: self.on_remove,
            Exec: self.on_exec,
            Show: self.on_told,
        }

    def live(self) -> list[Member]:
        """Those that are here."""
        return [member for member in self.space.members.values() if not member.gone]

    def on_list(self, message: ListWorkers, peer: Any) -> None:
        if not message.ended:
            self.engine.emit(peer, Answer(message.req, [described(member) for member in self.live()]))
            return

        def answer(stored: list[WorkerRow] | BaseException) -> None:
            if isinstance(stored, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(stored)))
                return
            ended = [described(row) for row in stored if row.id not in self.space.members]
            self.engine.emit(peer, Answer(message.req, [described(m) for m in self.live()] + ended))

        self.engine.read(self.space, StoredWorkers(self.space.name), answer)

    def on_show(self, message: ShowWorker, peer: Any) -> None:
        def answer(found: Found) -> None:
            commands = found.commands if isinstance(found, Member) else found.info.get("commands", ())
            if getattr(peer, "role", "plane") not in ("admin", "plane"):
                commands = ()  # they may say what only who ran them is to know
            self.engine.emit(peer, Answer(message.req, described(found) | {"commands": list(commands)}))

        self.find(message, peer, answer)

    def on_drain(self, message: DrainWorker, peer: Any) -> None:
        self._tell(message, peer, PleaseDrain())

    def on_remove(self, message: RemoveWorker, peer: Any) -> None:
        self._tell(message, peer, Removal("an operator removed its worker"))

    def on_exec(self, message: Exec, peer: Any) -> None:
        def start(found: Found) -> None:
            if isinstance(found, Member) and not found.gone:
                self.engine.tell(self.space.parents, Start(message, found), peer)
            else:
                ended = Conflict(f"daemon {_called(found)} has ended: nothing can be run there")
                self.engine.emit(peer, refusal(message.req, ended))

        self.find(message, peer, start)

    def on_told(self, message: Show, peer: Any) -> None:
        """A worker has dealt with what it was told before."""
        member = message.member
        if member.dismissal and not member.gone:  # once it has told itself that its work is killed
            self.engine.tell(self.space, message, peer)
            return
        self.engine.emit(peer, Answer(message.req, described(member)))

    def _tell(self, message: DrainWorker | RemoveWorker, peer: Any, what: Any) -> None:
        def tell(found: Found) -> None:
            if isinstance(found, Member) and not found.gone:
                self.engine.tell(found, what)
                self.engine.tell(self.space, Show(message.req, found), peer)
            else:
                ended = Conflict(f"worker {_called(found)} has ended already: nothing is left to do")
                self.engine.emit(peer, refusal(message.req, ended))

        self.find(message, peer, tell)

    def find(self, message: Any, peer: Any, then: Callable[[Found], object], name: str | None = None) -> None:
        """Go on with the worker that `message.name` (or `name`) is the id or the name of: of those that
        live, else of those that have ended the newest. Refuses `message` where there is none, or several."""
        wanted = message.name if name is None else name
        found, error = self._among_live(wanted)
        if error is not None:
            self.engine.emit(peer, refusal(message.req, error))
        elif found is not None:
            then(found)
        else:
            self.engine.read(self.space, StoredWorkers(self.space.name), lambda rows: stored(rows))

        def stored(rows: list[WorkerRow] | BaseException) -> None:
            if isinstance(rows, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(rows)))
                return
            row = next((row for row in rows if _is(wanted, row.id, row.info["name"])), None)
            if row is None:
                names = {member.hello.name for member in self.live()}
                remedy = "`lakeshore workers list --ended` shows those that there are and were"
                self.engine.emit(
                    peer, refusal(message.req, unknown(f"worker {wanted!r}", wanted, names, remedy))
                )
            else:
                then(self.space.members.get(row.id, row))

    def _among_live(self, wanted: str) -> tuple[Member | None, Refused | None]:
        live = self.live()
        for member in live:
            if text_of(member.hello.worker) == wanted.upper():
                return member, None
        named = [member for member in live if member.hello.name == wanted]
        if len(named) > 1:
            ids = listed(text_of(member.hello.worker) for member in named)
            return None, Conflict(f"{len(named)} workers are called {wanted!r}: name one by its id ({ids})")
        return (named[0] if named else None), None


def described(found: Found) -> dict[str, Any]:
    """A worker as plain data."""
    if isinstance(found, Member):
        return {"id": text_of(found.hello.worker), **found.info()}
    info = {name: value for name, value in found.info.items() if name != "commands"}
    return {"id": text_of(found.id), **info, "state": "ended"}


def id_of(found: Found) -> bytes:
    """A worker's id."""
    return found.hello.worker if isinstance(found, Member) else found.id


def is_id(text: str) -> bool:
    """Whether it may be the text of an id."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is(wanted: str, id: bytes, name: str) -> bool:
    return name == wanted or text_of(id) == wanted.upper()


def _called(found: Found) -> str:
    name = found.hello.name if isinstance(found, Member) else found.info["name"]
    return f"{name!r} ({text_of(id_of(found))})"
