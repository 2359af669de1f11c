"""Topics: the same journal as an invocation's, spelled as publish and subscribe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from .actor import Actor
from .engine import Engine
from .errors import Conflict, NotFound, StoreFailed
from .intake import refusal
from .journal import Journal, Streams
from .messages import Answer, CloseTopic, Drop, FollowTopic, ListTopics, Post, RemoveTopic
from .rows import TopicRow
from .values import pack_prepared_frames

if TYPE_CHECKING:
    from .space import Space

_CHUNK_FRAMES, _CHUNK_BYTES = 64, 256 * 1024


class Topic:
    """One topic: its journal and what was posted since the last commit began."""

    def __init__(self, id: bytes, name: str, journal: Journal) -> None:
        self.id, self.name, self.journal = id, name, journal
        self.closed = self.removed = False
        self.bytes = 0
        self.pending: list[tuple[Post, Any]] = []

    def row(self, namespace: str) -> TopicRow:
        """How it is stored."""
        journal = self.journal
        return TopicRow(
            namespace,
            self.id,
            self.name,
            journal.next_seq,
            journal.first_seq,
            self.bytes,
            self.closed,
            self.removed,
        )


class Topics(Actor):
    """The owner of a namespace's topics."""

    def __init__(self, engine: Engine, space: Space, journal_bytes: int) -> None:
        super().__init__(engine)
        self.space, self.journal_bytes = space, journal_bytes
        self.topics: dict[str, Topic] = {}
        self._dirty: dict[bytes, Topic] = {}
        self.streams = Streams(self)
        self.handlers |= {
            Post: self._on_post,
            CloseTopic: self._on_close,
            FollowTopic: self._on_follow,
            ListTopics: self._on_list,
            RemoveTopic: self._on_remove,
            Drop: self.streams.drop,
        }

    def restore(self, row: TopicRow) -> None:
        """Take back a stored topic."""
        topic = self._make(row.id, row.name, row.first_seq, row.next_seq)
        topic.bytes, topic.closed = row.bytes, row.closed
        topic.journal.ended = row.closed

    def flush(self) -> None:
        for topic in self._dirty.values():
            self._write(topic)
            self.engine.batch.put(topic.row(self.space.name))
        self._dirty.clear()

    def _write(self, topic: Topic) -> None:
        posts, topic.pending = topic.pending, []
        at = 0
        while at < len(posts):
            size, end = 0, at
            while end < len(posts) and end - at < _CHUNK_FRAMES and (end == at or size < _CHUNK_BYTES):
                size += len(posts[end][0].data)
                end += 1
            some = posts[at:end]
            data = pack_prepared_frames([p.at for p, _ in some], [Raw(p.data) for p, _ in some])
            first = topic.journal.next_seq
            topic.journal.append(0, topic.journal.index, len(some), data)
            topic.bytes += len(data)
            for number, (post, peer) in enumerate(some):
                self.engine.emit(peer, Answer(post.req, first + number))
            at = end

    def _touch(self, topic: Topic) -> None:
        self._dirty[topic.id] = topic
        self.engine.touch(self)

    def _make(self, id: bytes, name: str, first: int = 0, end: int = 0) -> Topic:
        journal = Journal(
            self, self.space.name, id, id, first_seq=first, next_seq=end, limit=self.journal_bytes
        )
        topic = self.topics[name] = Topic(id, name, journal)
        return topic

    def _open(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            topic = self._make(self.engine.new_id(), name)
            self._touch(topic)
        return topic

    def _on_post(self, message: Post, peer: Any) -> None:
        if why := self.engine.refusing() or self.engine.store.full:
            self.engine.send(peer, refusal(message.req, StoreFailed(f"not posted: {why}; try again later")))
            return
        topic = self._open(message.name)
        if topic.closed:
            error = Conflict(f"topic {message.name!r} is closed: nothing can be posted after its END")
            self.engine.emit(peer, refusal(message.req, error))
            return
        topic.pending.append((message, peer))
        self._touch(topic)

    def _on_close(self, message: CloseTopic, peer: Any) -> None:
        topic = self._open(message.name)
        if not topic.closed:
            self._write(topic)
            topic.closed = True
            self._touch(topic)
            topic.journal.finish(None)
        self.engine.emit(peer, Answer(message.req))

    def _on_follow(self, message: FollowTopic, peer: Any) -> None:
        journal = self._open(message.name).journal
        self.streams.follow(journal, message, peer)

    def _on_list(self, message: ListTopics, peer: Any) -> None:
        rows = [
            {"name": t.name, "frames": t.journal.next_seq, "bytes": t.bytes, "closed": t.closed}
            for t in self.topics.values()
        ]
        self.engine.emit(peer, Answer(message.req, sorted(rows, key=lambda row: str(row["name"]))))

    def _on_remove(self, message: RemoveTopic, peer: Any) -> None:
        topic = self.topics.pop(message.name, None)
        if topic is None:
            error = NotFound(f"no topic {message.name!r}: topics.list() shows what there is")
            self.engine.emit(peer, refusal(message.req, error))
            return
        for post, publisher in topic.pending:
            error = Conflict(f"topic {message.name!r} was removed before this was stored: post it again")
            self.engine.emit(publisher, refusal(post.req, error))
        topic.pending.clear()
        topic.removed = topic.closed = True
        self._touch(topic)
        topic.journal.finish(None)
        self.engine.emit(peer, Answer(message.req))
