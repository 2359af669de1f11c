"""Kinds of arguments. What can be judged without the plane is judged here, and ends with status 2."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from lakeshore.core.ids import parse
from lakeshore.core.settings import check_name

_MOST = (1 << 63) - 1
_BYTES = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d+")


def whole(least: int, most: int = _MOST) -> Callable[[Any, Sequence[Token]], int]:
    """A whole number within bounds."""
    wanted = f" from {least} to {most}" if most < _MOST else f", {least} or more"

    def convert(kind: Any, tokens: Sequence[Token]) -> int:
        text = tokens[0].value
        number = int(text) if _WHOLE.fullmatch(text) and len(text) < 20 else None
        if number is None or not least <= number <= most:
            raise ValueError(f'"{text}" is not a whole number{wanted}')
        return number

    return convert


def number(least: float = -math.inf, most: float = math.inf) -> Callable[[Any, Sequence[Token]], float]:
    """A finite number within bounds."""
    bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"at most {most:g}"] * (most < math.inf)

    def convert(kind: Any, tokens: Sequence[Token]) -> float:
        text = tokens[0].value
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and least <= found <= most):
            raise ValueError(f'"{text}" is not a number{" of " * bool(bounds)}{" and ".join(bounds)}')
        return found

    return convert


def _size(kind: Any, tokens: Sequence[Token]) -> int:
    """Bytes: a number, with K, M, G or T (of 1024) behind it."""
    found = _BYTES.fullmatch(text := tokens[0].value)
    if (
        found is None
        or not 0 < (size := float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) < 2**62
    ):
        raise ValueError(f'"{text}" is not a size: write bytes, or 512M, 2G, 1.5T')
    return int(size)


def _new_queue(kind: Any, tokens: Sequence[Token]) -> str:
    return check_name(tokens[0].value)


def _new_queues(kind: Any, tokens: Sequence[Token]) -> list[str]:
    return [check_name(token.value) for token in tokens]


def _queue(kind: Any, tokens: Sequence[Token]) -> str:
    """What may name a queue: a name, or the id of one."""
    text = tokens[0].value
    try:
        return check_name(text)
    except ValueError as error:
        try:
            parse(text)
        except ValueError:
            raise error from None
        return text


def _elasticity(kind: Any, tokens: Sequence[Token]) -> str:
    text = tokens[0].value
    if text in ELASTICITIES:
        return text
    spelled = text.replace("_", "-")
    if spelled in ELASTICITIES:
        raise ValueError(
            f'"{text}" is the spelling of lakeshore.yaml: the command line takes {spelled}, with hyphens'
        )
    raise ValueError(f'"{text}" is not an elasticity: choose from {", ".join(ELASTICITIES)}')


ELASTICITIES = ("fixed", "fully-elastic", "pool-with-threshold", "max-count")

QueueName = Annotated[str, Parameter(converter=_new_queue)]
QueueNames = Annotated[list[str], Parameter(converter=_new_queues)]
Queue = Annotated[str, Parameter(converter=_queue)]
Elasticity = Annotated[
    Literal["fixed", "fully-elastic", "pool-with-threshold", "max-count"], Parameter(converter=_elasticity)
]
Workers = Annotated[int, Parameter(converter=whole(0, 1_000_000_000))]
Share = Annotated[float, Parameter(converter=number(0.0, 1.0))]
Count = Annotated[int, Parameter(converter=whole(1))]
Index = Annotated[int, Parameter(converter=whole(0))]
Limit = Annotated[int, Parameter(converter=whole(1, 200))]
Seconds = Annotated[float, Parameter(converter=number(0.0, 1e11))]
Number = Annotated[float, Parameter(converter=number())]
Size = Annotated[int, Parameter(converter=_size)]
Flag = Annotated[bool, Parameter(show_default=False)]
Json = Annotated[Flag, Parameter(name="--json", help="Print JSON, for programs.")]
Watch = Annotated[
    Flag, Parameter(name="--watch", help="Again whenever it changed, until Ctrl-C; with --json, JSON Lines.")
]
