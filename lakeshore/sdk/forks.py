"""How often this process was forked off since Lakeshore was imported: cheaper to read than a pid."""

import os

count: int = 0  # read it as `forks.count`; what was noted with another count belongs to a parent


def _after_fork() -> None:
    global count
    count += 1


os.register_at_fork(after_in_child=_after_fork)
