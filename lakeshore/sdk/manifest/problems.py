"""What is wrong with a file, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgspec import Struct

from lakeshore.core.errors import LakeshoreError

Where = tuple[str | int, ...]  # the keys and indexes that lead to a value


class Problem(Struct, frozen=True):
    """One thing wrong. `line` counts from 1, 0 where there is none; `path` is dotted."""

    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ManifestError(LakeshoreError):
    """A lakeshore.yaml can't be read. `problems` are all that were found, in the order of the file."""

    def __init__(self, file: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(file, problems)
        self.file: str = file
        self.problems: tuple[Problem, ...] = problems

    def __str__(self) -> str:
        return "\n".join(
            f"{self.file}:{problem.line}: {problem}" if problem.line else f"{self.file}: {problem}"
            for problem in self.problems
        )


def dotted(where: Where) -> str:
    """`queues.eval.admission.max_depth`, `…setup[1]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """` (did you mean 'x'?)`, or nothing where nothing known is like it."""
    spellings = {_bare(name): name for name in known}
    near = difflib.get_close_matches(_bare(word), spellings, 1, cutoff)
    return f" (did you mean {spellings[near[0]]!r}?)" if near else ""


def same_word(one: str, other: str) -> bool:
    """Whether two spellings differ in case, hyphens and underscores only."""
    return _bare(one) == _bare(other)


def _bare(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
