"""Measure every module of this Python's standard library and site-packages, one invocation each.

python examples/quickstart.py              # run it twice: the second time is done at once
python examples/quickstart.py --limit 200
python examples/quickstart.py --folder src
"""

from __future__ import annotations

import argparse
import ast
import logging
import sysconfig
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

import dreamlake.lakeshore as dls


@dataclass
class Module:
    """What is known of one file. `code` counts lines that are neither blank nor only a comment."""

    path: str
    bytes: int
    lines: int
    code: int
    functions: int
    classes: int


@dls.udf(queue="modules")
def measure(path: str) -> Module:
    """Parse one file. One that does not parse raises, and so its invocation fails."""
    source = Path(path).read_bytes()
    kinds = [type(statement) for statement in statements(ast.parse(source, path))]
    lines = [line.strip() for line in source.splitlines()]
    return Module(
        path,
        bytes=len(source),
        lines=len(lines),
        code=sum(1 for line in lines if line and not line.startswith(b"#")),
        functions=kinds.count(ast.FunctionDef) + kinds.count(ast.AsyncFunctionDef),
        classes=kinds.count(ast.ClassDef),
    )


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, however deep; expressions, which hold none, are passed over."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, block, ())


@dls.udf(queue="progress")
async def collect(address: str, ids: list[str]) -> AsyncIterator[Module | str]:
    """Yield each result as soon as it is there; for an invocation that failed, its id."""
    async with dls.AsyncDispatch(address) as q:  # in one process a path is one plane: the one it runs on
        for inv in ids:
            try:
                yield await q.result(inv, type=Module)
            except dls.InvocationFailed:
                yield inv


def main() -> None:
    """Submit, work, show."""
    options = arguments()
    folders = options.folder or [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    files = [file for folder in folders for file in python_files(folder)][: options.limit]
    console = Console()
    if not console.is_terminal:
        console.width = 120
    logging.getLogger("lakeshore").setLevel(logging.ERROR)  # what failed has a table of its own

    with dls.Dispatch(options.store) as q:
        console.print(f"{len(files):,} files go to the plane {q.address}", soft_wrap=True)
        ids = measure.submit_many({"path": str(file), "_key": key_of(file)} for file in files)
        with suppress(dls.NotFound):
            q.jobs.bulk_cancel("progress")  # what a run that was interrupted has left
        with working(q, "modules") as ran, working(q, "progress"):
            frames = q.stream(collect.submit(q.address, ids))
            shown = track(frames, "Measuring", len(ids), console=console, disable=not console.is_terminal)
            values = [frame.value for frame in shown]  # each frame moves the bar
        found = len(ids) - ran.result()

        modules = [value for value in values if isinstance(value, Module)]
        failed = [value for value in values if isinstance(value, str)]
        console.print(table_of_modules(modules, folders, options.top))
        if failed:
            console.print(table_of_failures([q.get(inv) for inv in failed]))
        console.print(f"{len(modules):,} measured, {len(failed):,} failed; {found:,} found by their keys")


@contextmanager
def working(q: dls.Dispatch, queue: str) -> Iterator[Future[int]]:
    """A worker on a thread, for one queue; it ends with the block and says how many bodies it ran."""
    stop = Event()
    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(dls.run_worker, q, queues=[queue], grace=0.1, stop=stop)
        finally:
            stop.set()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--folder", type=Path, action="append", help="measure this one instead (repeatable)")
    parser.add_argument("--limit", type=int, help="measure at most so many files")
    parser.add_argument("--top", type=int, default=10, help="show so many of the largest modules")
    parser.add_argument("--store", help="the plane's file (default: in LAKESHORE_HOME)")
    return parser.parse_args()


def python_files(folder: Path) -> list[Path]:
    """The `.py` files of a folder; of the standard library's without the site-packages inside it."""
    return [
        file for file in sorted(folder.rglob("*.py")) if "site-packages" not in file.relative_to(folder).parts
    ]


def key_of(file: Path) -> str:
    """The same as long as the file is: the same key gives the same invocation."""
    stat = file.stat()
    return f"{file}:{stat.st_mtime_ns}:{stat.st_size}"


def table_of_modules(modules: list[Module], folders: list[Path], top: int) -> Table:
    """The largest modules, and the totals of all."""
    table = Table(title=f"The {min(top, len(modules))} largest modules", show_footer=True, box=SIMPLE)
    table.add_column("module", f"all {len(modules):,}", overflow="fold")
    for name in ("code", "lines", "functions", "classes", "bytes"):
        total = f"{sum(getattr(module, name) for module in modules):,}"
        table.add_column(name, total, justify="right", no_wrap=True)
    for module in sorted(modules, key=lambda module: module.code, reverse=True)[:top]:
        numbers = (module.code, module.lines, module.functions, module.classes, module.bytes)
        table.add_row(escape(short(Path(module.path), folders)), *(f"{number:,}" for number in numbers))
    return table


def table_of_failures(invocations: list[dls.Invocation]) -> Table:
    """The files that did not parse, as the invocations that failed."""
    table = Table(title="These do not parse", box=SIMPLE)
    table.add_column("invocation", no_wrap=True)
    table.add_column("state")
    table.add_column("error")
    for invocation in invocations:
        table.add_row(invocation.id, invocation.state, escape(str(invocation.error)))
    return table


def short(file: Path, folders: list[Path]) -> str:
    """A path without the innermost folder it was found in."""
    return min((str(file.relative_to(folder)) for folder in folders if file.is_relative_to(folder)), key=len)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the modules, not ours
    main()
