"""What the kernel says of processes: what ended one, what memory a group takes, who was out of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_WORDS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
}


def signal_name(number: int) -> str:
    """ "SIGTERM", or "signal 99" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how(status: int) -> str:
    """An exit code, or minus a signal, in words that follow the name of a process."""
    if status >= 0:
        return f"ended with exit code {status}"
    words = _WORDS.get(signal.Signals(-status)) if -status in signal.valid_signals() else None
    return f"was killed by {signal_name(-status)}" + (f" ({words})" if words else "")


def memory_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processes of our control group were killed as its memory ran out; 0 where nobody says.

    Args:
        proc, cgroups: where the kernel's folders are.
    """
    count = 0
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if number == "0":
                count += _counter(cgroups / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                count += _counter(cgroups / "memory" / path.lstrip("/") / "memory.oom_control")
    return count


def _counter(file: Path) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def members(groups: Iterable[int]) -> dict[int, list[int]]:
    """The processes of some process groups: one look at everything that runs."""
    found: dict[int, list[int]] = {group: [group] for group in groups}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (group := _group_of(name)) in found and int(name) != group:
                found[group].append(int(name))
    return found


def _group_of(name: str) -> int:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[2])
    except (OSError, ValueError, IndexError):
        return 0


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that some processes take, each counted by itself; one that is gone takes none."""
    total = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def proportional(pids: Iterable[int]) -> int:
    """The same where what several share counts once; slower, so for when it matters."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                lines = dict(line.split(b":", 1) for line in file if b":" in line)
            total += int(lines[b"Pss"].split()[0]) * 1024
        except (OSError, ValueError, KeyError, IndexError):
            total += resident((pid,))
    return total
