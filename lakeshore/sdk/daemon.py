"""`lakeshore daemon start`: this process becomes the parent of a worker."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from .daemons.early import ahead
from .daemons.options import DaemonOptions, hand_over

_CODE = "from lakeshore.sdk.daemons.parent import main; main()"


def start(options: DaemonOptions) -> NoReturn:
    """Be a daemon from now on, in this very process: what it has loaded so far is let go of."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = str(hand_over(options, ahead()))
    os.execv(sys.executable, [sys.executable, "-c", _CODE, descriptor, f"daemon {options.name}"])
