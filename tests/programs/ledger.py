"""What was acknowledged so far, and whether what a plane says later agrees with it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

TERMINAL = frozenset({"succeeded", "failed", "killed", "timeout"})
BODIES = frozenset({"plain", "waiting", "counting", "counting_slowly", "failing", "second_time", "endless"})


class Ledger:
    """Takes evidence line by line, in the order it was said; `findings` are what contradicts."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.invocations: dict[str, None] = {}  # acknowledged, in order
        self.results: dict[str, Any] = {}  # by id: [state, value]
        self.ends: dict[str, Any] = {}  # by id: the terminal row
        self.frames: defaultdict[str, dict[int, Any]] = defaultdict(dict)  # by id: seq → [attempt, value]
        self.read: set[str] = set()  # ids read to their end
        self.keys: dict[str, str] = {}  # by key: the id
        self.calls: dict[str, tuple[str, Any]] = {}  # by key: the body's name and arguments
        self.open_keys: list[str] = []  # of submits that were cut off
        self.topics: defaultdict[str, dict[int, int]] = defaultdict(dict)  # by name: seq → value
        self.queues: set[str] = set()
        self.killed: set[str] = set()
        self.starts: set[tuple[str, int]] = set()
        self.tried: dict[int, Any] = {}  # by number, until acknowledged
        self.posted: set[int] = set()  # values that were ever tried
        self.phases: Counter[str] = Counter()
        self._unsure = 0  # invocations that may be there and were never acknowledged
        self._rows: dict[str, Any] = {}
        self._readers: dict[str, int] = {}  # by id: the seq that a reader gets next
        self._topic_next: dict[str, int] = {}

    def take(self, line: bytes) -> None:
        """One line of evidence. A line that was cut off is none."""
        try:
            kind, *more = json.loads(line)
        except ValueError:
            return
        self.phases[kind] += 1
        getattr(self, "_" + kind.replace(" ", "_"), self._nothing)(*more)

    def end_round(self) -> list[tuple[str, int]]:
        """The process is gone. Returns the readers that were cut off, and their cursors."""
        self.open_keys.clear()
        for what, *more in self.tried.values():
            if what == "submit":
                name, count, key, args = more
                self._unsure += count
                if key:
                    self.calls.setdefault(key, (name, args))
                    self.open_keys.append(key)
        self.tried.clear()
        self._rows.clear()
        readers = [(inv, since) for inv, since in self._readers.items() if inv in self.invocations]
        self._readers.clear()
        self._topic_next.clear()
        return readers

    def _wrong(self, text: str) -> None:
        self.findings.append(text)

    def _nothing(self, *more: Any) -> None:
        """A phase, or what says nothing of the plane."""

    def _error(self, text: str) -> None:
        self._wrong(f"the program failed: {text}")

    def _stuck(self) -> None:
        self._wrong(f"the program is stuck; it was asked {list(self.tried.values())}")

    def _log(self, level: str, text: str) -> None:
        if level in ("ERROR", "CRITICAL"):
            self._wrong(f"logged: {text}")

    # verbs

    def _try(self, number: int, what: str, *more: Any) -> None:
        self.tried[number] = (what, *more)
        if what == "post":
            self.posted.add(number)

    def _ok(self, number: int, *answers: Any) -> None:
        what, *more = self.tried.pop(number)
        if what == "submit":
            self._submitted(more, answers)
        elif what == "post":
            self._at(self.topics[more[0]], answers[0], number, f"topic {more[0]}")
        elif what == "kill":
            self.killed.add(more[0])
            self._ended(more[0], "killed")
        else:
            self.queues.add(answers[0])

    def _submitted(self, more: list[Any], ids: tuple[str, ...]) -> None:
        name, _, key, args = more
        if key is None:
            for inv in ids:
                if inv in self.invocations:
                    self._wrong(f"{inv} was given to two submits")
        else:
            known = self.keys.setdefault(key, ids[0])
            if known != ids[0]:
                self._wrong(f"key {key} gave {known}, then {ids[0]}")
            self.calls[key] = (name, args)
        self.invocations.update(dict.fromkeys(ids))

    def _start(self, inv: str, attempt: int) -> None:
        if (inv, attempt) in self.starts:
            self._wrong(f"attempt {attempt} of {inv} began twice")
        self.starts.add((inv, attempt))
        if inv in self.results or inv in self.ends:
            self._wrong(f"{inv} ran again after its end")

    def _result(self, inv: str, state: str, value: Any) -> None:
        self._ended(inv, state)
        known = self.results.setdefault(inv, [state, value])
        if known != [state, value]:
            self._wrong(f"{inv} ended with {known}, then with {[state, value]}")
        self._check_count(inv)

    def _ended(self, inv: str, state: str) -> None:
        known = self.results.get(inv) or self.ends.get(inv) or ("killed" if inv in self.killed else state,)
        if known[0] != state:
            self._wrong(f"{inv} was {known[0]}, then {state}")

    def _gone(self, inv: str) -> None:
        self._wrong(f"{inv} was acknowledged and is gone")

    # frames

    def _reader(self, inv: str, since: int) -> None:
        self._readers[inv] = since

    def _left(self, inv: str) -> None:
        del self._readers[inv]

    def _cut(self, inv: str) -> None:
        self._wrong(f"{inv} had {len(self.frames[inv])} frames and has {self._readers[inv]}")

    def _frame(self, inv: str, seq: int, attempt: int, value: Any) -> None:
        if seq != self._readers[inv]:
            self._wrong(f"frame {seq} of {inv} came where {self._readers[inv]} was next")
        self._readers[inv] = seq + 1
        if inv in self.read and seq not in self.frames[inv]:
            self._wrong(f"frame {seq} of {inv} came after its end was read")
        self._at(self.frames[inv], seq, [attempt, value], inv)
        before = self.frames[inv].get(seq - 1)
        goes_on = before is not None and before[0] == attempt
        number = before[1][-1] + 1 if before and goes_on else 0
        if value[2::2] != [attempt, number] or (before and before[0] > attempt):
            self._wrong(f"frame {seq} of {inv}, attempt {attempt}, is {value} after {before}")

    def _read(self, inv: str) -> None:
        cursor = self._readers.pop(inv)
        if cursor != len(self.frames[inv]):
            self._wrong(
                f"the stream of {inv} ended at {cursor}, {len(self.frames[inv])} frames were delivered"
            )
        self.read.add(inv)
        self._check_count(inv)

    def _check_count(self, inv: str) -> None:
        """The last attempt of a generator that succeeded has all its frames."""
        if inv not in self.read or self.results.get(inv, [""])[0] != "succeeded":
            return
        last = self.frames[inv].get(len(self.frames[inv]) - 1)
        value = self.results[inv][1]
        there, count = (last[1][-1] + 1, last[1][-2]) if last else (0, value[-1] if value else 0)
        if there != count:
            self._wrong(f"{inv} succeeded with {there} of {count} frames")

    def _gap(self, inv: str, since: int, first: int) -> None:
        self._wrong(f"the stream of {inv} from {since} on had a gap up to {first}")

    def _topic_reader(self, name: str) -> None:
        self._topic_next[name] = 0

    def _topic_frame(self, name: str, seq: int, value: int) -> None:
        if seq != self._topic_next[name]:
            self._wrong(f"frame {seq} of topic {name} came where {self._topic_next[name]} was next")
        self._topic_next[name] = seq + 1
        if value not in self.posted:
            self._wrong(f"topic {name} has {value}, which nobody posted")
        self._at(self.topics[name], seq, value, f"topic {name}")

    def _topic_cut(self, name: str, frames: int) -> None:
        self._wrong(f"topic {name} had {frames} frames and has {self._topic_next[name]}")

    def _at(self, place: dict[int, Any], seq: int, value: Any, what: str) -> None:
        if place.setdefault(seq, value) != value:
            self._wrong(f"frame {seq} of {what} was {place[seq]}, then {value}")

    # the whole plane

    def _looking(self) -> None:
        self._rows.clear()

    def _row(self, inv: str, state: str, key: str | None, body: str, *more: Any) -> None:
        ended_at, attempt, error, attempts = more
        if inv in self._rows:
            self._wrong(f"{inv} is listed twice")
        if key and self.keys.get(key, inv) != inv:
            self._wrong(f"key {key} is of {self.keys[key]} and of {inv}")
        if key:
            self.keys[key] = inv
        self._rows[inv] = state
        if body.rpartition(".")[2] not in BODIES or (state in TERMINAL) != (ended_at is not None):
            self._wrong(f"the record of {inv} is not whole: {state}, {body}, ended {ended_at}")
        self._check_attempts(inv, state, attempt, attempts)
        if state in TERMINAL:
            self._ended(inv, state)
            row = [state, ended_at, attempt, error, attempts]
            if self.ends.setdefault(inv, row) != row:
                self._wrong(f"the end of {inv} was {self.ends[inv]} and is {row}")
        elif inv in self.ends or inv in self.results or inv in self.killed:
            self._wrong(f"{inv} had ended and is {state}")

    def _check_attempts(self, inv: str, state: str, attempt: int, attempts: list[Any]) -> None:
        numbers = [number for number, _ in attempts]
        if numbers != sorted(set(numbers)) or numbers[-1:] > [attempt]:
            self._wrong(f"the attempts of {inv} are numbered {numbers}, the last {attempt}")
        outcomes = [outcome for _, outcome in attempts]
        final = [outcome for outcome in outcomes if outcome in ("succeeded", "killed", "timeout")]
        expected = [state] if state in TERMINAL - {"failed"} else []
        if final != expected and not (state in ("killed", "timeout") and not final):
            self._wrong(f"{inv} is {state} and its attempts ended {outcomes}")
        if outcomes.count("lost") > 3:
            self._wrong(f"{inv} lost {outcomes.count('lost')} workers and was tried again")

    def _listed(self, queues: list[str]) -> None:
        for inv in self.invocations.keys() - self._rows.keys():
            self._wrong(f"{inv} was acknowledged and is not listed")
        unknown = self._rows.keys() - self.invocations.keys()
        if len(unknown) > self._unsure:
            self._wrong(f"{len(unknown)} invocations are there that {self._unsure} submits may have made")
        self._unsure -= len(unknown)
        self.invocations.update(dict.fromkeys(unknown))  # seen once, it has to stay
        if missing := self.queues - set(queues):
            self._wrong(f"queues {missing} were acknowledged and are gone")

    # what to look at

    def known_calls(self, newest: int) -> list[Any]:
        """Keys that were submitted, and what they were given with. First those that were cut off."""
        keys = dict.fromkeys([*self.open_keys, *list(self.calls)[-newest:]])
        return [[key, *self.calls[key]] for key in keys]
