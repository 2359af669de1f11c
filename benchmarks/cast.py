"""The other processes of a measurement: heads, workers, daemons. All of them end with it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

from setting import Setting

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0  # seconds for what takes one
_TICK = os.sysconf("SC_CLK_TCK")


class Player:
    """One process. Its output is kept, line by line; with its standard input it is told to end.

    Attributes:
        pid: of the process.
        url: where it listens, for a head.
    """

    def __init__(self, command: list[str], home: Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=HERE,  # where bodies are imported from
            env=environment(home),
        )
        self.pid, self.url = self._process.pid, ""
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, text: str) -> str:
        """The next line that has this in it; all that it said before it is passed over."""
        while text not in (line := self._next()):
            pass
        return line

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, in whatever state it is."""
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def cpu(self) -> float:
        """Seconds of processor time that all its threads took so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def _next(self) -> str:
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            line = ""
        if not line:
            raise AssertionError(f"process {self.pid} said nothing more than: {''.join(self._said[-30:])}")
        return line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line)
            self._lines.put(line)
        self._lines.put("")


class Cast:
    """All processes of one measurement.

    Args:
        home: the `LAKESHORE_HOME` of all of them.
        script: what plays a role, where no other is named.
    """

    def __init__(self, setting: Setting, home: Path, script: str) -> None:
        self.setting, self.home, self.script = setting, home, script
        self._players: list[Player] = []

    def play(self, role: str, *words: object, script: str = "") -> Player:
        """A process that plays this role; it says "ready"."""
        return self.run(sys.executable, HERE / (script or self.script), role, *words)

    def run(self, *command: object) -> Player:
        """Any command."""
        player = Player([str(word) for word in command], self.home)
        self._players.append(player)
        return player

    def head(self) -> Player:
        """`lakeshore serve` on a free port of this machine."""
        setting = self.setting
        head = self.play("head", setting.loop, setting.folder / "plane.db", setting.sync)
        head.url = head.until(" on tcp://").rpartition(" on ")[2].strip(' "}\n')
        return head

    def worker(self, address: str, slots: int) -> Player:
        """A process that works for this address."""
        worker = self.play("work", self.setting.loop, address, self.setting.sync, slots)
        worker.until("ready")
        return worker

    def daemon(self, url: str, *options: object) -> Player:
        """`lakeshore daemon start`, which has just begun."""
        loop = self.setting.loop
        command = ("-m", "lakeshore", "--url", url, "daemon", "start", "--backend", loop, *options)
        return self.run(sys.executable, *command)

    def close(self) -> None:
        """End them all."""
        for player in self._players:
            player.kill()


@contextlib.contextmanager
def cast(setting: Setting, script: str = "player.py") -> Generator[Cast]:
    """Processes that end with the block. Inside it this process has the same home as they."""
    home = setting.folder / "home"
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("LAKESHORE_")}
    os.environ["LAKESHORE_HOME"] = str(home)
    players = Cast(setting, home, script)
    try:
        yield players
    finally:
        players.close()
        del os.environ["LAKESHORE_HOME"]
        os.environ.update(kept)


def environment(home: Path) -> dict[str, str]:
    """As this process has it, with that home, and with modules that stay compiled."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKESHORE_")}
    return {name: value for name, value in kept.items() if name not in left_out} | {
        "LAKESHORE_HOME": str(home)
    }


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def proportional(pid: int) -> int:
    """Bytes of memory of a process: its own pages, and its share of those it has with others (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("this kernel does not tell the PSS of a process")
