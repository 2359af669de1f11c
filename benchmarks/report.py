"""The table that is printed."""

from __future__ import annotations

import sys
from typing import Any

from aims import LOOPS, Beside, Row
from rich.console import Console
from rich.table import Table

Medians = dict[str, dict[str, float]]


def progress(text: str) -> None:
    """What is being measured, for who waits."""
    print(text, file=sys.stderr, flush=True)


def best(row: Row, beside: Beside, medians: Medians) -> tuple[str, float] | None:
    """The best of these peers, however it waits, and its figure."""
    found = {
        key: figures[beside.figure]
        for key, figures in medians.items()
        if key.split()[0] == beside.measurement and key.split()[1] in beside.peers
    }
    if not found:
        return None
    key = (max if row.least else min)(found, key=found.__getitem__)
    return " ".join(key.split()[1:]).removesuffix(" default"), found[key]


def times_as_good(row: Row, value: float, other: float) -> float:
    """How many times as good as the other ours is."""
    return value / other if row.least else other / value


def values(row: Row, medians: Medians) -> dict[str, Any]:
    """One line as data."""
    measured = {
        loop: medians[key][row.figure]
        for loop in row.loops
        if (key := f"{row.name} {loop} {row.store}") in medians
    }
    line: dict[str, Any] = {"what": row.what, "measured": measured}
    line["aims"] = {loop: row.aim(loop) for loop in row.loops}
    line["met"] = {loop: row.met(loop, value) for loop, value in measured.items()}
    line["beside"] = []
    for beside in row.beside:
        if peer := best(row, beside, medians):
            ratios = {loop: times_as_good(row, value, peer[1]) for loop, value in measured.items()}
            line["beside"].append({"peer": peer[0], "value": peer[1], "times": ratios, "aim": beside.aim})
    return line


def show(rows: list[Row], medians: Medians, absent: dict[str, str], sizes: dict[str, int]) -> None:
    """Print everything."""
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    console.print(_machine(medians))
    table = Table("what", "n", "aim", *LOOPS, "best peer", "× peer", "× aimed at")
    for row in rows:
        _add(table, row, values(row, medians), sizes)
    console.print(table)
    console.print("! misses its aim.  × peer: how many times as good as the peer, asyncio / trio.")
    if peers := {key: figures for key, figures in medians.items() if key.split()[1] not in LOOPS}:
        console.print(_peers(peers))
    for key, why in absent.items():
        console.print(f"not measured: {key}: {why}", markup=False)


def _machine(medians: Medians) -> Table:
    table = Table("this machine, in this run", *LOOPS)
    loops = [medians[key] for loop in LOOPS if (key := f"machine {loop} memory") in medians]
    for figure in loops[0] if loops else ():
        table.add_row(figure, *(number(figures[figure]) for figures in loops))
    return table


def _peers(peers: Medians) -> Table:
    table = Table("measurement", "peer", "figures")
    for key, figures in peers.items():
        name, peer = key.split(maxsplit=1)
        table.add_row(name, peer, ", ".join(f"{number(value)} {figure}" for figure, value in figures.items()))
    return table


def _add(table: Table, row: Row, line: dict[str, Any], sizes: dict[str, int]) -> None:
    aims = dict.fromkeys(number(aim) for aim in line["aims"].values() if aim is not None)
    cells = [_cell(line, loop) for loop in LOOPS]
    table.add_row(
        row.what,
        f"{sizes[row.name]:,}",
        ("≥ " if row.least else "≤ ") + " / ".join(aims) if aims else "–",
        *cells,
        "\n".join(f"{peer['peer']} {number(peer['value'])}" for peer in line["beside"]),
        "\n".join(" / ".join(map(number, peer["times"].values())) for peer in line["beside"]),
        "\n".join(f"≥ {number(peer['aim'])}" if peer["aim"] else "–" for peer in line["beside"]),
    )


def markdown(rows: list[Row], medians: Medians) -> str:
    """The table for a page: an aim that is reached is in bold, and so is a ratio."""
    lines = [
        f"| what | aim | {' | '.join(LOOPS)} | best peer in the same run |",
        "| --- | --- |" + " --- |" * 3,
    ]
    shown = [(row, line) for row in rows if (line := values(row, medians))["measured"]]
    lines += [f"| {' | '.join(_markdown(row, line))} |" for row, line in shown]
    return "\n".join(lines) + "\n"


def _markdown(row: Row, line: dict[str, Any]) -> list[str]:
    aims = list(dict.fromkeys(number(aim) for aim in line["aims"].values() if aim is not None))
    aimed = [("at least " if row.least else "at most ") + " / ".join(aims)] if aims else []
    aimed += [f"{number(peer['aim'])} × the best peer" for peer in line["beside"] if peer["aim"]]
    reached = [loop for loop, aim in line["aims"].items() if aim is not None and line["met"].get(loop)]
    cells = {loop: number(value) for loop, value in line["measured"].items()}
    cells |= {loop: f"**{cells[loop]}**" for loop in reached if loop in cells}
    peers: dict[str, str] = {}
    for peer in line["beside"]:
        times, aim = peer["times"].values(), peer["aim"]
        ratios = " / ".join(f"{number(ratio)} ×" for ratio in times)
        bold = aim is not None and all(ratio >= aim for ratio in times)
        peers.setdefault(f"{peer['peer']} {number(peer['value'])}", f"**{ratios}**" if bold else ratios)
    beside = ", ".join(f"{peer} ({ratios})" for peer, ratios in peers.items())
    return [row.what, "; ".join(aimed), *(cells.get(loop, "") for loop in LOOPS), beside]


def _cell(line: dict[str, Any], loop: str) -> str:
    if loop not in line["measured"]:
        return ""
    return number(line["measured"][loop]) + ("" if line["met"][loop] else " !")


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
