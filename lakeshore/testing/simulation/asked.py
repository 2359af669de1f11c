"""What a simulated client has asked, and what it was told."""

from __future__ import annotations

from typing import Any

from lakeshore.testing.hand import HandClient


class Asked:
    """One request.

    Attributes:
        state: "open", "blocked" (waits for room), "turn" (has been given a place), "done" or "gone".
        holder: who held its key on the disk when it was sent.
        there: whether the invocation that it is about was on the disk when it was sent, and how.
        expected: how it must be answered, where that is known.
        cursor: of a stream, the next frame that it is to be sent.
        credit: how many frames it may be sent.
        seen: frames that have arrived at the client.
        heard: how often the head has heard it, from a client in another process.
        given: how often the head has answered it.
        again: it was sent again.
        unsure: it may have been told to wait for room where nobody listened.
        answered: the program has its answer.
    """

    __slots__ = (
        "again", "answered", "client", "credit", "cursor", "expected", "given", "got", "heard", "holder",
        "id", "kind", "message", "number", "seen", "sent", "since", "state", "there", "turned", "unsure",
    )  # fmt: skip

    def __init__(self, client: SimClient, kind: str, message: Any, id: bytes, sent: float) -> None:
        self.client, self.kind, self.message, self.id, self.sent = client, kind, message, id, sent
        self.state = "open"
        self.holder: bytes | None = None
        self.there: Any = None
        self.expected: tuple[str, ...] | None = None
        self.since = self.cursor = getattr(message, "since", 0)
        self.credit = getattr(message, "credit", 0)
        self.seen = self.cursor
        self.got = 0  # items of a submit_many that are answered, frames of a stream that were consumed
        self.number = 0  # when it began to wait for room; of a topic, how often that had been removed
        self.turned = 0.0
        self.heard = self.given = 0
        self.again = self.unsure = self.answered = False


class SimClient:
    """A program: the client it talks through, and what it has open."""

    far = away = False  # away: it is in another process, and has no link just now

    def __init__(self, number: int, hand: HandClient) -> None:
        self.number, self.hand = number, hand
        self.asked: dict[int, Asked] = {}
        self.gone = False  # it is no more, and the head has not noticed

    def unsent(self, asked: Asked) -> bool:
        """Whether it has not left yet, and rightly so."""
        return False

    def replied(self, asked: Asked, answer: Any) -> None:
        """The program has an answer."""
