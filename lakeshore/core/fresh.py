"""The ids that this process makes. Apart, since a program that runs bodies needs them and no plane."""

from __future__ import annotations

import os
import threading
import time

from .ids import IdMaker

new_id = IdMaker(lambda: time.time_ns() // 1_000_000, os.urandom, threading.Lock)
os.register_at_fork(after_in_child=new_id.forked)
