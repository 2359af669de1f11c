"""What applying a file changes, as data and as the lines that are printed."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

Outcome = Literal["unchanged", "planned", "done", "failed"]


class Edit(Struct, frozen=True):
    """One setting: what it was and what it becomes. None is none, or no limit."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field} {_shown(self.before)} → {_shown(self.after)}"


class Change(Struct, frozen=True, rename="camel"):
    """What a file asks of one queue or provider, or of the storage, and what came of it.

    `action` is add, change or none; `outcome` is unchanged, planned (a dry run), done or failed, with
    `error` as the reason. A change that failed may have been done in part; applying again goes on.
    """

    item: Literal["storage", "provider", "queue"]
    name: str
    action: Literal["add", "change", "none"]
    outcome: Outcome
    edits: tuple[Edit, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        head = f"{self.item} {self.name}: " if self.name else ""  # the edit says what the storage is
        if self.error is not None:
            return (head or f"{self.item}: ") + self.error
        if self.action == "none":
            return (head or f"{self.item}: ") + "unchanged"
        planned = self.outcome == "planned"
        if self.action == "add":
            return f"{head}{'would add' if planned else 'added'} ({', '.join(map(_given, self.edits))})"
        return f"{head}{'would change ' * planned}{', '.join(map(str, self.edits))}"


def _given(edit: Edit) -> str:
    return _shown(edit.after) if edit.field == "kind" else f"{edit.field} {_shown(edit.after)}"


def _shown(value: Any) -> str:
    """A value in a sentence."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, str):
        plain = value.isprintable() and value and not set(value) & set(" ,'\"→{}[]")
        return value if plain else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return f"{{{', '.join(f'{name} {_shown(part)}' for name, part in fields.items())}}}"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e6 else str(value)
