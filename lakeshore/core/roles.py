"""Which role may send what.

`submit` may do all that `read` may, `admin` all that `submit` may; `work` registers workers, reads, and
submits on behalf of the bodies it runs. `plane` is the role of who owns the whole plane: it administers
what belongs to no namespace.
"""

from __future__ import annotations

import re
from typing import Any

from .messages import CloseTopic, Post, Request, Submit, SubmitMany

ROLES: tuple[str, ...] = ("submit", "read", "work", "admin")  # what a token may have

_LEVELS = {"read": 0, "work": 0, "submit": 1, "admin": 2, "plane": 3}
_WORD = re.compile("[A-Z][a-z]*")
_OF_CHILDREN = (Submit, SubmitMany, Post, CloseTopic)


def allows(role: str, message: Any) -> bool:
    """Whether a peer of that role may send this."""
    kind = message.__class__
    if not issubclass(kind, Request):
        return role in ("work", "admin", "plane")
    if _LEVELS[role] >= _LEVELS[kind.role]:
        return True
    if role != "work" or kind not in _OF_CHILDREN:
        return False
    if kind is Submit:
        return message.call.parent is not None
    return kind is not SubmitMany or all(item.call.parent is not None for item in message.items)


def denial(role: str, message: Any) -> str:
    """Why it may not, and what would."""
    name = _WORD.sub(lambda found: f" {found[0].lower()}", message.__class__.__name__).strip()
    if role == "work" and type(message) in _OF_CHILDREN:
        return (
            "a token with the role work submits only inside the bodies it runs: use one with the role submit"
        )
    wanted = getattr(message, "role", "work")
    if wanted == "plane":
        return f"to {name} is for the owner of the whole plane: use the head's own token"
    return f"this token has the role {role}, and to {name} it takes {wanted}: use a token with that role"
