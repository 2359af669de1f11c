"""`lakeshore tokens`."""

from __future__ import annotations

import msgspec

from lakeshore.sdk.choices import Role

from . import plane, printing
from .app import arrange, group
from .parameters import Json

app = group("tokens", "Who may come in over TCP, and what they may do.")

_COLUMNS: list[printing.Column] = [
    ("ID", lambda token: token.id),
    ("NAME", lambda token: token.name),
    ("NAMESPACE", lambda token: token.namespace),
    ("ROLE", lambda token: token.role),
    ("CREATED", lambda token: token.created_at),
    ("USED", lambda token: token.last_used_at),
]


@app.command
def create(*, role: Role, name: str = "", json: Json = False) -> None:
    """Make a token and print it, this once; only its hash is kept.

    Example: lakeshore tokens create --namespace research --role submit

    Args:
        role: read looks; submit submits, too; work runs jobs; admin may do all in its namespace.
        name: A label to tell it from others.
    """
    with plane.opened() as q:
        made = q.tokens.create(role=role, namespace=plane.named().namespace, name=name)
    if json:
        printing.document(msgspec.to_builtins(made))
        return
    print(made.token)
    printing.note("this is the only time the token is shown: keep it with lakeshore login")


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List tokens, without what they are: of the namespace named, else all that you may see.

    Example: lakeshore tokens list
    """
    with plane.opened() as q:
        printing.show(printing.rows(q.tokens.list(plane.named().namespace), _COLUMNS), json)


@app.command
def remove(token: str, /, *, json: Json = False) -> None:
    """Revoke a token; who uses it is cut off.

    Example: lakeshore tokens remove 01K2Z7M3Q4W5E6R7T8Y9ZABCDE

    Args:
        token: Its id or name.
    """
    with plane.opened() as q:
        found = q.tokens.remove(token)
    printing.said(f"token {found.id} revoked", found, json)


arrange(app, list=("ls",), remove=("rm", "revoke", "delete"), create=("add",))
