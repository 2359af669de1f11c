"""Leaks to plant, so that a test can see the soak find each."""

from collections.abc import Callable
from typing import Any

from lakeshore.core.archive import Archive
from lakeshore.core.client import Client
from lakeshore.core.topics import Topics


def kept_streams() -> None:
    """A stream that is closed, at its end or before, is never withdrawn from the plane."""
    _put(Client, "close_stream", lambda self, req, id=b"": self._streams.pop(req, None))


def followed_topics() -> None:
    """A topic that was only followed stays."""
    _put(Topics, "_leave", lambda self, journal: None)


def young_forever() -> None:
    """Nothing is ever old enough to be pruned."""
    make: Any = Archive.__init__

    def init(self: Any, engine: Any, space: Any, retention: float) -> None:
        make(self, engine, space, 1e9)

    _put(Archive, "__init__", init)


def _put(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)


LEAKS: dict[str, Callable[[], None]] = {
    leak.__name__: leak for leak in (kept_streams, followed_topics, young_forever)
}
