"""A process whose tasks submit with one key at the same moment, for a test that tells it when.

python tests/key_crowd.py URL BACKEND TASKS
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import anyio

import lakeshore as dls


@dls.udf(queue="narrow")
def noted(log: str, n: int) -> int:
    """Count a start, beyond this process's end."""
    with open(log, "a") as file:
        file.write(f"{n}\n")
    return n


async def main(url: str, tasks: int) -> None:
    """One round for each line of standard input; the ids that the tasks were given are a line."""
    async with dls.AsyncDispatch(url) as q:
        await q.status()
        print("ready", flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            log, number = json.loads(line)
            ids: Counter[str] = Counter()

            async def submit(log: str = log, n: int = number, ids: Counter[str] = ids) -> None:
                ids[await q.submit(noted, log, n, _key=f"key {n}")] += 1

            async with anyio.create_task_group() as crowd:
                for _ in range(tasks):
                    crowd.start_soon(submit)
            print(json.dumps(ids), flush=True)


if __name__ == "__main__":
    sys.modules["key_crowd"] = sys.modules["__main__"]
    backend: Any = sys.argv[2]
    anyio.run(main, sys.argv[1], int(sys.argv[3]), backend=backend)
