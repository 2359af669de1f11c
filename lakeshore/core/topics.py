"""Topics: the same journal as an invocation's, spelled as publish and subscribe."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from .actor import Actor
from .engine import Engine
from .errors import Conflict, NotFound, StoreFailed
from .intake import refusal
from .journal import Journal, Streams
from .messages import Answer, CloseTopic, Drop, FollowTopic, ListTopics, Post, RemoveTopic
from .notes import SweepTopics
from .rows import TopicRow
from .values import pack_prepared_frames

if TYPE_CHECKING:
    from .space import Space

_CHUNK_FRAMES, _CHUNK_BYTES = 64, 256 * 1024
_SWEEP_TOPICS, _SWEEP_FRAMES = 1000, 4096  # looked at, and dropped of each, in one step
_PUBLISHERS = 64  # whose posts are remembered in each topic, those that posted last
_MARKS, _MARK_SECONDS = 32, 2.0  # times remembered of a topic within its retention; how near at most


class Topic:
    """One topic: its journal and what was posted since the last commit began.

    Attributes:
        marks: (end, time): frames below `end` were posted by then, and a closed topic's END.
    """

    def __init__(self, id: bytes, name: str, journal: Journal) -> None:
        self.id, self.name, self.journal = id, name, journal
        self.closed = self.removed = False
        self.bytes = 0
        self.pending: dict[Any, tuple[Post, Any]] = {}
        self.marks: deque[tuple[int, float]] = deque()
        self._publishers: dict[bytes, dict[int, int]] = {}

    def posted(self, post: Post) -> int | None:
        """Which number a post has got that its publisher sends again."""
        return self._publishers.get(post.publisher, {}).get(post.number)

    def add(self, post: Post, peer: Any) -> None:
        """Something is posted; what is sent again before it is written takes its own place."""
        self.pending[(post.publisher, post.number) if post.publisher else id(post)] = (post, peer)

    def remember(self, post: Post, seq: int) -> None:
        """A publisher may send this again, but nothing that it has settled."""
        numbers = self._publishers.pop(post.publisher, {})
        while numbers and (first := next(iter(numbers))) < post.settled:
            del numbers[first]
        numbers[post.number] = seq
        self._publishers[post.publisher] = numbers
        if len(self._publishers) > _PUBLISHERS:
            del self._publishers[next(iter(self._publishers))]

    def restore(self, row: TopicRow) -> None:
        """Take back what was stored besides the journal."""
        self.bytes, self.closed = row.bytes, row.closed
        self.journal.ended = row.closed
        self.marks.extend(row.marks)
        self._publishers = {publisher: dict(numbers) for publisher, numbers in row.publishers}

    def mark(self, at: float, grain: float) -> None:
        """Remember when the newest frame came, once in `grain` seconds."""
        if self.marks and self.marks[-1][1] // grain == at // grain:
            self.marks.pop()
        self.marks.append((self.journal.next_seq, at))

    def expire(self, before: float) -> bool:
        """Drop some of what was posted before a time; False when nothing is left of it."""
        marks, journal = self.marks, self.journal
        if not marks or marks[0][1] >= before:
            return False
        below = min(marks[0][0], journal.first_seq + _SWEEP_FRAMES)
        if below > journal.first_seq:
            journal.trim(below)
        if marks[0][0] <= journal.first_seq:
            marks.popleft()
        return True

    def row(self, namespace: str) -> TopicRow:
        """How it is stored."""
        journal, marks = self.journal, self.marks
        while len(marks) > 1 and marks[0][0] <= journal.first_seq:
            marks.popleft()
        return TopicRow(
            namespace,
            self.id,
            self.name,
            journal.next_seq,
            journal.first_seq,
            self.bytes,
            self.closed,
            self.removed,
            tuple(marks),
            tuple((publisher, tuple(numbers.items())) for publisher, numbers in self._publishers.items()),
        )


class Topics(Actor):
    """The owner of a namespace's topics. One that is only followed is in memory alone."""

    def __init__(self, engine: Engine, space: Space, journal_bytes: int) -> None:
        super().__init__(engine)
        self.space, self.journal_bytes = space, journal_bytes
        self.topics: dict[str, Topic] = {}
        self._dirty: dict[bytes, Topic] = {}
        self._unstored: dict[bytes, Topic] = {}
        self.streams = Streams(self)
        self.handlers |= {
            Post: self._on_post,
            CloseTopic: self._on_close,
            FollowTopic: self._on_follow,
            ListTopics: self._on_list,
            RemoveTopic: self._on_remove,
            SweepTopics: self._on_sweep,
            Drop: self._on_drop,
        }

    def restore(self, row: TopicRow) -> None:
        """Take back a stored topic."""
        topic = self._make(row.id, row.name, row.first_seq, row.next_seq)
        topic.restore(row)

    def flush(self) -> None:
        for topic in self._dirty.values():
            self._write(topic)
            self.engine.batch.put(topic.row(self.space.name))
        self._dirty.clear()

    def _write(self, topic: Topic) -> None:
        posts, topic.pending = list(topic.pending.values()), {}
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
            for seq, (post, peer) in enumerate(some, first):
                if post.publisher:
                    topic.remember(post, seq)
                self.engine.emit(peer, Answer(post.req, seq))
            at = end
        if posts:
            topic.mark(self.engine.wall(), self._grain())

    def _grain(self) -> float:
        return max(self.space.archive.retention / _MARKS, _MARK_SECONDS)

    def _touch(self, topic: Topic) -> None:
        self._unstored.pop(topic.id, None)
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
            self._unstored[topic.id] = topic
        return topic

    def _leave(self, journal: Journal) -> None:
        """Forget a topic that was only followed, with its last follower."""
        topic = self._unstored.get(journal.owner)
        if topic is not None and not journal.followers:
            del self._unstored[topic.id], self.topics[topic.name]

    def _on_post(self, message: Post, peer: Any) -> None:
        if why := self.engine.refusing() or self.engine.store.full:
            self.engine.send(peer, refusal(message.req, StoreFailed(f"not posted: {why}; try again later")))
            return
        topic = self._open(message.name)
        if message.publisher and (seq := topic.posted(message)) is not None:
            self.engine.emit(peer, Answer(message.req, seq))
            return
        if topic.closed:
            error = Conflict(f"topic {message.name!r} is closed: nothing can be posted after its END")
            self.engine.emit(peer, refusal(message.req, error))
            return
        topic.add(message, peer)
        self._touch(topic)

    def _on_close(self, message: CloseTopic, peer: Any) -> None:
        topic = self._open(message.name)
        if not topic.closed:
            self._write(topic)
            topic.closed = True
            topic.mark(self.engine.wall(), self._grain())
            self._touch(topic)
            topic.journal.finish(None)
        self.engine.emit(peer, Answer(message.req))

    def _on_follow(self, message: FollowTopic, peer: Any) -> None:
        journal = self._open(message.name).journal
        self.streams.follow(journal, message, peer)
        self._leave(journal)

    def _on_drop(self, message: Drop, peer: Any) -> None:
        journal = self.streams.drop(message, peer)
        if journal is not None:
            self._leave(journal)

    def _on_list(self, message: ListTopics, peer: Any) -> None:
        rows = [
            {"name": t.name, "frames": t.journal.next_seq, "bytes": t.bytes, "closed": t.closed}
            for t in self.topics.values()
            if t.id not in self._unstored
        ]
        self.engine.emit(peer, Answer(message.req, sorted(rows, key=lambda row: str(row["name"]))))

    def _on_remove(self, message: RemoveTopic, peer: Any) -> None:
        topic = self.topics.get(message.name)
        if topic is None or topic.id in self._unstored:
            error = NotFound(f"no topic {message.name!r}: topics.list() shows what there is")
            self.engine.emit(peer, refusal(message.req, error))
            return
        del self.topics[message.name]
        for post, publisher in topic.pending.values():
            error = Conflict(f"topic {message.name!r} was removed before this was stored: post it again")
            self.engine.emit(publisher, refusal(post.req, error))
        topic.pending.clear()
        topic.removed = topic.closed = True
        self._touch(topic)
        topic.journal.finish(None)
        self.engine.emit(peer, Answer(message.req))

    # retention

    def _on_sweep(self, message: SweepTopics, sender: Any) -> None:
        names = list(self.topics) if message.names is None else message.names
        before = self.engine.wall() - self.space.archive.retention
        some, rest = names[:_SWEEP_TOPICS], names[_SWEEP_TOPICS:]
        rest += [name for name in some if self._expire(name, before)]
        if rest:
            self.engine.emit(self, SweepTopics(rest))

    def _expire(self, name: str, before: float) -> bool:
        topic = self.topics.get(name)
        if topic is None or not topic.expire(before):
            return False
        self._touch(topic)
        if not topic.closed or topic.marks:
            return True
        topic.removed = True
        del self.topics[name]
        return False
