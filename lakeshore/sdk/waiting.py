"""How long everyone who has lost a head waits before the next try, so that they do not all come at once."""

from __future__ import annotations

import random

from lakeshore.core.messages import Sorry


def wait(tries: int, first: float, longest: float, *, took: float = 0.0, hint: float = 0.0) -> float:
    """Seconds until the next try: a draw from a span that doubles with each, from the first one on.

    Args:
        tries: that have failed before this one.
        first, longest: what the span is at first and at most, seconds.
        took: seconds that this try took. Those who have waited as long for a head that said nothing began
            at the same instant, too, so the span is at least as long.
        hint: seconds that the head asks to stay away; they come before the span.
    """
    return hint + random.uniform(0.0, min(longest, max(took, first * 2.0 ** min(tries, 30))))


def hint_of(answer: object) -> float:
    """The seconds that a goodbye asks to stay away, or 0."""
    return answer.retry_after or 0.0 if isinstance(answer, Sorry) else 0.0
