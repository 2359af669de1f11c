"""Measure every module of this Python's standard library and site-packages, one invocation each.

    python examples/quickstart.py              # run it twice: the second time is done at once
    python examples/quickstart.py --limit 200
    python examples/quickstart.py --folder src
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dreamlake.lakeshore as dls
from rich.console import Console
from rich.progress import track
from rich.table import Table


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
def watch(address: str, ids: list[str]) -> Iterator[int]:
    """Yield how many of these invocations have ended, as they end."""
    with dls.Dispatch(address) as q:  # the plane this runs on: in one process, one path is one plane
        for done, inv in enumerate(ids, 1):
            with suppress(dls.Unsuccessful):  # that is an end, too
                q.result(inv)
            yield done


def main() -> None:
    """Submit, work, show."""
    options = arguments()
    files = [file for folder in options.folder or folders() for file in python_files(folder)]
    files = files[: options.limit]
    items = [{"path": str(file), "_key": key_of(file)} for file in files]
    console = Console()

    with ThreadPoolExecutor(1) as threads, dls.Dispatch(options.store) as q:
        console.print(f"{len(files):,} files go to the plane {q.address}")
        ids = measure.submit_many(items)
        watching = watch.submit(q.address, ids)
        worker = threads.submit(dls.run_worker, q, queues=["modules", "progress"], slots=2, drain=True, grace=1.0)
        for _ in track(
            q.stream(watching), "Measuring", len(ids), console=console, disable=not console.is_terminal
        ):
            pass  # each frame moves the bar
        found = len(ids) - (worker.result() - 1)  # all but what the worker ran, `watch` included

        modules: list[Module] = []
        failures: list[dls.InvocationFailed] = []
        for inv in ids:
            try:
                modules.append(q.result(inv, type=Module))
            except dls.InvocationFailed as error:
                failures.append(error)
        console.print(table_of(modules, options.top))
        if failures:
            console.print(table_of_failures(q, failures))
        console.print(
            f"{len(modules):,} measured, {len(failures):,} failed; "
            f"{found:,} of these results were there already, found by their keys."
        )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--folder", type=Path, action="append", help="measure this one instead (repeatable)")
    parser.add_argument("--limit", type=int, help="measure at most so many files")
    parser.add_argument("--top", type=int, default=10, help="show so many of the largest modules")
    parser.add_argument("--store", help="the plane's file (default: in LAKESHORE_HOME)")
    return parser.parse_args()


def folders() -> list[Path]:
    """Where this Python keeps its standard library and what was installed beside it."""
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]


def python_files(folder: Path) -> list[Path]:
    """The `.py` files of a folder; of the standard library's without the site-packages inside it."""
    return [
        file for file in sorted(folder.rglob("*.py")) if "site-packages" not in file.relative_to(folder).parts
    ]


def key_of(file: Path) -> str:
    """The same as long as the file is: the same key gives the same invocation."""
    stat = file.stat()
    return f"{file}:{stat.st_mtime_ns}:{stat.st_size}"


def table_of(modules: list[Module], top: int) -> Table:
    """The largest modules, and the totals of all."""
    numbers = ("code", "lines", "functions", "classes", "bytes")
    table = Table(title=f"The {min(top, len(modules))} largest modules", show_footer=True)
    table.add_column("module", f"all {len(modules):,}", overflow="ellipsis", no_wrap=True)
    for name in numbers:
        table.add_column(name, f"{sum(getattr(module, name) for module in modules):,}", justify="right", no_wrap=True)
    for module in sorted(modules, key=lambda module: module.code, reverse=True)[:top]:
        table.add_row(short(module.path), *(f"{getattr(module, name):,}" for name in numbers))
    return table


def table_of_failures(q: dls.Dispatch, failures: list[dls.InvocationFailed]) -> Table:
    """Every file that did not parse, as the invocation that failed."""
    table = Table(title="These did not parse", show_lines=True)
    for name in ("invocation", "state", "error"):
        table.add_column(name)
    for failure in failures:
        table.add_row(failure.id, q.get(failure.id).state, f"{failure.type}: {failure.message}")
    return table


def short(path: str) -> str:
    """A path without the folder that all modules share."""
    for folder in reversed(folders()):
        if Path(path).is_relative_to(folder):
            return str(Path(path).relative_to(folder))
    return path


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the modules, not ours
    main()
