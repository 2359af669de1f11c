"""Has a command run on a daemon's machine, over a link of its own: its output is passed on as it comes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from lakeshore.core.errors import FramingError, LakeshoreError, OutcomeUnknown, Unreachable, rebuild
from lakeshore.core.messages import Credit, Exec, ExecEnd, ExecOutput, Refusal, Sorry, Welcome
from lakeshore.sdk.knocking import knock
from lakeshore.transports.blocking import BlockingLink

_CREDIT = 512 << 10  # bytes of output on their way
_ANSWER = 10.0  # seconds that a head may take to say welcome
_SILENCE = 30.0  # seconds until a head that says nothing at all, not even a Ping, is given up


class Broken(LakeshoreError):
    """The command had begun, and its end is not known."""


def run_there(
    place: str,
    daemon: str,
    command: Sequence[str],
    out: BinaryIO,
    err: BinaryIO,
    *,
    namespace: str = "",
    token: str = "",
    ca: str | None = None,
) -> int:
    """Run a command and return its exit status, or minus the signal that killed it.

    Args:
        place: a URL.
        daemon: an id or a name.
        out, err: where its output goes.

    Raises: Refused; Unreachable; Broken where the link did not last; LakeshoreError where the command
        can't be run there.
    """
    link = BlockingLink(place, ca=ca)
    try:
        _greet(link, place, namespace, token)
        link.send(Exec(1, daemon, tuple(command), _CREDIT))
        try:
            return _follow(link, {1: out, 2: err})
        except (OSError, EOFError, FramingError) as error:
            if isinstance(error, BrokenPipeError) or not isinstance(error, OSError | EOFError):
                raise
            raise Broken(f"the connection to {place} broke ({error}): the command is killed there") from error
    finally:
        link.close()


def _greet(link: BlockingLink, place: str, namespace: str, token: str) -> None:
    link.send(knock(os.urandom(16), "client", namespace, token))
    try:
        answer = link.receive(_ANSWER)
    except (OSError, EOFError) as error:
        raise Unreachable(f"{place} does not answer as a Lakeshore head does ({error})") from error
    if type(answer) is Sorry:
        raise rebuild(answer.kind, answer.message, answer.details)
    if type(answer) is not Welcome:
        raise Unreachable(f"{place} takes connections and says nothing: see whether it is stopped")


def _follow(link: BlockingLink, streams: dict[int, BinaryIO]) -> int:
    while True:
        message: Any = link.receive(_SILENCE)
        if message is None:
            raise EOFError("it says nothing any more")
        if isinstance(message, ExecOutput):
            _write(streams[message.stream], message.data)
            link.send(Credit(1, 0, len(message.data)))
        elif isinstance(message, ExecEnd):
            if message.error:
                _write(streams[2], f"{message.error}\n".encode())
            return message.status
        elif isinstance(message, Refusal):
            error = rebuild(message.kind, message.message, message.details)
            raise Broken(str(error)) if isinstance(error, OutcomeUnknown) else error
        elif isinstance(message, Sorry):
            raise EOFError(message.message)


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()
