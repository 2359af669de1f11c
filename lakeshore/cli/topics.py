"""`lakeshore topics`."""

from __future__ import annotations

from lakeshore.core.errors import NotFound

from . import plane, printing
from .app import arrange, group
from .outcomes import show_frame
from .parameters import Flag, Index, Json

app = group("topics", "Journals that many post to and many read.")

_COLUMNS: list[printing.Column] = [
    ("NAME", lambda topic: topic.name),
    ("FRAMES", lambda topic: topic.frames),
    ("BYTES", lambda topic: topic.bytes),
    ("CLOSED", lambda topic: topic.closed),
]


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List topics.

    Example: lakeshore topics list
    """
    with plane.opened() as q:
        printing.show(printing.rows(q.topics.list(), _COLUMNS), json)


@app.command
def read(name: str, /, *, since: Index = 0, no_wait: Flag = False, json: Json = False) -> None:
    """Print what was posted, and what is posted from now on, until somebody closes the topic.

    Example: lakeshore topics read news --since 100

    Args:
        name: The topic's name.
        since: The number of the first value; 0 is the first of all.
        no_wait: End after what is there now.
    """
    with plane.opened() as q:
        frames = next((topic.frames for topic in q.topics.list() if topic.name == name), None)
        if frames is None:
            raise NotFound(f"no topic {name!r}: `lakeshore topics list` shows what there is")
        there = frames if no_wait else None
        if there is not None and since >= there:
            return
        for frame in q.topic(name).stream(since=since):
            show_frame(frame, json)
            if there is not None and frame.seq + 1 >= there:
                return


@app.command
def remove(name: str, /, *, json: Json = False) -> None:
    """Delete a topic and its values.

    Example: lakeshore topics remove news

    Args:
        name: The topic's name.
    """
    with plane.opened() as q:
        q.topics.remove(name)
    printing.said(f"topic {name} removed", {"name": name}, json)


arrange(app, list=("ls",), remove=("rm", "delete"))
