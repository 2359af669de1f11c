"""What is wrong with a message that came from outside. Pure.

Types are checked where a message is decoded; here its values are, so that handlers may trust them: an
exception in a handler ends the whole plane. **Every message has an entry in `CHECKS`** or is in
`HEADS_ALONE`. Nothing here depends on what a head knows: whether an id exists, or whose it is, its actors
say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core import messages as m

from . import administrators, clients, daemons, workers

Check = Callable[[Any, int], str]


def vet(message: Any, payload_limit: int) -> str:
    """What is wrong with a message, in one sentence; empty where nothing is.

    Args:
        message: decoded, of any class.
        payload_limit: bytes that packed arguments, a result, or a frame may take.
    """
    check = CHECKS.get(message.__class__)
    if check is None:
        return f"a head does not take {message.__class__.__name__}"
    return check(message, payload_limit)


def _nothing(message: Any, limit: int) -> str:
    return ""


CHECKS: dict[type, Check] = {
    **clients.CHECKS,
    **administrators.CHECKS,
    **workers.CHECKS,
    **daemons.CHECKS,
    **dict.fromkeys((m.Drain, m.Bye, m.Ping, m.Pong), _nothing),  # they say no more than their names
}
HEADS_ALONE: frozenset[type] = frozenset(
    {
        *(m.Accepted, m.Refusal, m.SubmittedMany, m.Blocked, m.Turn, m.Outcome, m.Answer, m.Described),
        *(m.Chunk, m.StreamEnd, m.StreamGap),
        *(m.Grant, m.Stop, m.Reclaim, m.EndedAck, m.FramesAck, m.Cleared, m.LoggedAck, m.Quiet),
        *(m.Registered, m.PleaseDrain, m.Dismiss, m.Anew, m.Serving, m.Beaten, m.Welcome, m.Sorry),
        *(m.ExecOutput, m.ExecEnd, m.Execute, m.Refill, m.Terminate),
    }
)
