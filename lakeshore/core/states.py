"""The life of one invocation. Pure: no clock, no I/O, no event loop."""

from enum import StrEnum

from .errors import IllegalMove


class State(StrEnum):
    """Where an invocation is. The last four are terminal."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    TIMEOUT = "timeout"

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self not in LIVE


LIVE = frozenset({State.QUEUED, State.RUNNING})


class Move(StrEnum):
    """What may happen to an invocation."""

    CLAIM = "claim"
    KILL = "kill"
    EXPIRE = "expire"
    SUCCEED = "succeed"
    FAIL = "fail"
    RETRY = "retry"
    LOSE = "lose"
    RELEASE = "release"


TRANSITIONS: dict[tuple[State, Move], State] = {  # every legal move; anything else is refused
    (State.QUEUED, Move.CLAIM): State.RUNNING,
    (State.QUEUED, Move.KILL): State.KILLED,
    (State.QUEUED, Move.EXPIRE): State.TIMEOUT,
    (State.RUNNING, Move.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Move.RETRY): State.QUEUED,
    (State.RUNNING, Move.FAIL): State.FAILED,
    (State.RUNNING, Move.EXPIRE): State.TIMEOUT,
    (State.RUNNING, Move.KILL): State.KILLED,
    (State.RUNNING, Move.LOSE): State.QUEUED,
    (State.RUNNING, Move.RELEASE): State.QUEUED,
}


def step(state: State, move: Move) -> State:
    """Return the state after `move`, or raise `IllegalMove`."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMove(state, move) from None


class QueueState(StrEnum):
    """What a queue admits and hands out."""

    ACTIVE = "active"
    DRAINING = "draining"
    PAUSED = "paused"
    ARCHIVED = "archived"


class QueueMove(StrEnum):
    """What an operator may ask of a queue."""

    DRAIN = "drain"
    PAUSE = "pause"
    RESUME = "resume"
    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"


_MOVES: dict[QueueMove, tuple[frozenset[QueueState], QueueState]] = {  # from any of, to
    QueueMove.DRAIN: (frozenset({QueueState.ACTIVE, QueueState.PAUSED}), QueueState.DRAINING),
    QueueMove.PAUSE: (frozenset({QueueState.ACTIVE}), QueueState.PAUSED),
    QueueMove.RESUME: (frozenset({QueueState.PAUSED}), QueueState.ACTIVE),
    QueueMove.ARCHIVE: (frozenset(QueueState), QueueState.ARCHIVED),
    QueueMove.UNARCHIVE: (
        frozenset({QueueState.DRAINING, QueueState.ARCHIVED}),
        QueueState.ACTIVE,
    ),
}


def step_queue(state: QueueState, move: QueueMove) -> QueueState:
    """Return the queue's state after `move`; the state it already has is fine.

    Raises: IllegalMove where the move does not apply.
    """
    origins, target = _MOVES[move]
    if state is target:
        return target
    if state not in origins:
        raise IllegalMove(state, move, subject="a queue")
    return target


ADMITS = frozenset({QueueState.ACTIVE, QueueState.PAUSED})
HANDS_OUT = frozenset({QueueState.ACTIVE, QueueState.DRAINING})
