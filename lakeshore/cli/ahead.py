"""What a command line asks for, judged before anything that can parse it is loaded."""

from __future__ import annotations

from collections.abc import Sequence

EVERYWHERE = ("--url", "--namespace", "--token", "--ca")  # the options of every command
HELP = ("--help", "-h")


def starts_daemon(tokens: Sequence[str]) -> bool:
    """Whether this is `daemon start`, right or wrong."""
    words: list[str] = []
    left = iter(tokens)
    for token in left:
        flag, equals, _ = token.partition("=")
        if token == "--":
            break
        if flag in HELP:
            return False
        if flag not in EVERYWHERE:
            words.append(token)
        elif not equals:
            next(left, None)
    return words[:2] == ["daemon", "start"]


def value_of(flag: str, tokens: Sequence[str], default: str) -> str:
    """What a command line gives an option; a guess."""
    for place, token in enumerate(tokens):
        name, equals, value = token.partition("=")
        if name == flag and (equals or place + 1 < len(tokens)):
            return value if equals else tokens[place + 1]
    return default
