"""What may become of an invocation, from one commit to the next."""

from __future__ import annotations

from lakeshore.core.rows import InvocationRow

from .facts import SLACK, TERMINAL, Broken, name_of
from .truth import Truth

_LOSSES = 3


class Lives(Truth):
    """Looks at each row that is stored."""

    def check_row(self, old: InvocationRow | None, new: InvocationRow) -> None:
        name, record = name_of(new), new.record
        if old is None:
            self._check_first(new)
        else:
            if old.state in TERMINAL:
                raise Broken("one terminal state, once", f"{name} was {old.state} and became {new.state}")
            if new.place != old.place or new.queue != old.queue:
                raise Broken("what returns keeps its place", f"{name} was moved")
            if record.attempt < old.record.attempt:
                raise Broken("an attempt's number is never used again", f"{name}, {record.attempt}")
        numbers = [attempt.number for attempt in record.attempts]
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > record.attempt):
            raise Broken("an attempt's number is never used again", f"{name}: {numbers}")
        open_ = [attempt.number for attempt in record.attempts if attempt.ended_at is None]
        if open_ != ([record.attempt] if new.state == "running" else []):
            raise Broken("the table of transitions", f"{name} is {new.state} with open attempts {open_}")
        if new.state in TERMINAL and record.ended_at is None:
            raise Broken("the table of transitions", f"{name} is {new.state} without an end")
        self._check_attempts(old, new)
        if new.state in TERMINAL:
            self._check_end(new)
        elif new.state == "queued" and record.attempts:
            self._check_delay(new)

    def _check_first(self, new: InvocationRow) -> None:
        call, name = self.calls.get(new.id), name_of(new)
        if new.id in self.retries_of:
            first = self.disk.rows.get(self.retries_of[new.id])
            if first is None or first.state not in TERMINAL or new.call.retry_of != first.id:
                raise Broken("only what has ended is retried", name)
            return
        if call is None:
            raise Broken("nothing runs that nobody submitted", name)
        if (new.call.key, new.record.priority) != (call.call.key, call.priority):
            raise Broken("what is stored is what was submitted", name)
        deadline = None if call.deadline is None else new.record.submitted_at + call.deadline
        if new.record.deadline != deadline:
            raise Broken("what is stored is what was submitted", f"{name}: another deadline")
        soonest = self.heard_at[new.id] + (call.delay or 0.0) - SLACK
        if new.record.attempt and self.now() < soonest and not self.reopened:
            raise Broken("nothing begins before its delay", name)

    def _check_attempts(self, old: InvocationRow | None, new: InvocationRow) -> None:
        """Each attempt that is new, or newly over, has a cause."""
        known = {} if old is None else {a.number: a for a in old.record.attempts}
        losses = retries = 0
        for attempt in new.record.attempts:
            before = known.get(attempt.number)
            if before is None:
                self._check_claim(old, new, attempt.started_at)
            if attempt.outcome is None or (before is not None and before.outcome is not None):
                continue
            report = self.ended.get((new.id, attempt.number))
            hand = self.hands[attempt.worker]
            what = f"{name_of(new)}, attempt {attempt.number}"
            if attempt.outcome in ("failed", "succeeded"):
                move = "fail" if attempt.outcome == "failed" else "succeed"
                if report is None or report[0] != attempt.worker or report[1].move != move:
                    raise Broken("only the current attempt is heard", f"{what} {attempt.outcome} unheard")
                retries += attempt.outcome == "failed" and new.state == "queued"
            elif attempt.outcome == "lost":
                losses += 1
                if not self.gone_since(hand, (new.id, attempt.number)):
                    raise Broken("a loss needs a lost worker", what)
            elif attempt.outcome == "returned":
                key = (new.id, attempt.number)
                gave = key in self.gave_back or (hand.leased and key not in self.ran)
                if not (gave or hand.left or self.gone_since(hand, key)):
                    raise Broken("an attempt returns only where its worker let go", what)
            elif attempt.outcome == "timeout":
                self._check_timeout(new, attempt.number)
        before_losses = 0 if old is None else old.record.losses
        if new.record.losses > before_losses + losses:
            raise Broken(
                "losses and retries are counted apart", f"{name_of(new)}: {new.record.losses} losses"
            )
        if new.record.losses >= _LOSSES and new.state == "queued":
            raise Broken("what was lost three times has failed", name_of(new))
        if new.record.retries > new.call.options.retries:
            raise Broken("no more retries than were asked for", name_of(new))
        before_retries = 0 if old is None else old.record.retries
        if new.record.retries > before_retries and not any(
            a.outcome == "failed" and (a.number not in known or known[a.number].outcome is None)
            for a in new.record.attempts
        ):
            raise Broken("losses and retries are counted apart", f"{name_of(new)}: a retry without a failure")

    def _check_delay(self, new: InvocationRow) -> None:
        """A retry comes within its delay: that doubles with each, up to a cap."""
        options, record = new.call.options, new.record
        if record.ready_at is not None and record.retries and record.attempts[-1].outcome == "failed":
            longest = min(options.retry_cap, options.retry_delay * 2.0 ** (record.retries - 1))
            if record.ready_at > self.now() + max(self.offsets) + longest + SLACK:
                raise Broken("a retry comes within its delay", name_of(new))

    def _check_claim(self, old: InvocationRow | None, new: InvocationRow, started_at: float) -> None:
        deadline = new.record.deadline
        if deadline is not None and self.earliest(started_at) > self.latest(deadline):
            raise Broken("nothing begins after its deadline", name_of(new))
        ready = old.record.ready_at if old is not None and old.state == "queued" else None
        if ready is not None and self.now() < self.earliest(ready):
            raise Broken("nothing begins before its delay", name_of(new))

    def _check_timeout(self, new: InvocationRow, attempt: int) -> None:
        timeout, began = new.call.options.timeout, self.began.get((new.id, attempt))
        if timeout is None or began is None or self.now() < began + timeout - SLACK:
            raise Broken("only what ran too long times out", f"{name_of(new)}, attempt {attempt}")

    def _check_end(self, new: InvocationRow) -> None:
        record, name = new.record, name_of(new)
        report = self.ended.get((new.id, record.attempt))
        last = record.attempts[-1] if record.attempts else None
        if new.state == "succeeded":
            if report is None or last is None or report[1].move != "succeed" or report[0] != last.worker:
                raise Broken("only the current attempt is heard", f"{name} succeeded unheard")
        elif new.state == "failed":
            if record.losses >= _LOSSES and record.error is not None and "WorkerLost" in record.error.type:
                return
            if report is None or last is None or report[1].move != "fail" or report[0] != last.worker:
                raise Broken("only the current attempt is heard", f"{name} failed unheard")
            left = report[1].retryable and record.retries < new.call.options.retries
            if left and not record.killing:
                raise Broken("what has retries left is retried", name)
        elif new.state == "killed":
            queue = self.queue_name(new)
            asked = new.id in self.kills or None in self.cancelled or queue in self.cancelled
            asked = asked or (last is not None and self.hands[last.worker].removed)
            if not asked and queue:
                raise Broken("nothing is killed that nobody killed", name)
        elif last is None or last.outcome != "timeout":
            self._check_expired(new)

    def _check_expired(self, new: InvocationRow) -> None:
        """It timed out while it was queued."""
        if new.record.deadline is not None and self.now() >= self.earliest(new.record.deadline):
            return
        cutoff = self.admission(new.queue).get("deadline_cutoff_s")
        if cutoff is None or self.now() < self.heard_at[new.id] + cutoff - SLACK:
            raise Broken("nothing expires before its time", name_of(new))
