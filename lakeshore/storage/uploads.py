"""A large file on its way to an object: there but for its last part (and those still under way), until it is
published.

An object that is uploaded in parts is not seen before the upload is completed, and obstore completes one when
the iterator it reads from ends, and aborts it when that raises. So the iterator stops before the last part
and waits for what is decided: to publish takes one part and one request however large the file is, to discard
leaves nothing behind, and no server has to copy anything (S3 copies at most 5 GiB at once). What it costs is
a sleeping thread. obstore's own writer can't be had for this: it does not abort.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from .bucket import Bucket

_PARTS = 9_000  # of one upload; S3 takes 10,000
_live: weakref.WeakSet[Upload] = weakref.WeakSet()


class _Discarded(Exception):
    pass


class Upload:
    """One try at storing a file as an object, on a thread of its own.

    Args:
        part: bytes of a part, where `_PARTS` of them are enough.
        concurrency: parts under way at once.
        advance: called with the bytes that were handed over.
    """

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        path: Path,
        *,
        part: int,
        concurrency: int,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._bucket, self._key, self._path, self._advance = bucket, key, path, advance
        self._size = path.stat().st_size
        self._part, self._concurrency = max(part, -(-self._size // _PARTS)), concurrency
        self._waiting, self._decided = threading.Event(), threading.Event()
        self._discarded = False
        self._etag = ""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"lakeshore-upload {key}", daemon=True)
        _live.add(self)
        self._thread.start()

    def wait(self) -> Upload:
        """Until all but the last part is handed over. Raises: Passing, StorageFailed."""
        self._waiting.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def finish(self) -> str:
        """Publish; the ETag. Raises: Passing, StorageFailed."""
        self._decided.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._etag

    def discard(self, timeout: float | None = None) -> None:
        """Leave nothing behind."""
        self._discarded = True
        self._decided.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._etag = self._bucket.upload_once(self._key, self._pieces(), self._part, self._concurrency)
        except BaseException as error:
            self._failure = error
        finally:
            _live.discard(self)
            self._waiting.set()

    def _pieces(self) -> Iterator[bytes]:
        left = self._size
        with open(self._path, "rb", buffering=0) as file:
            while left > self._part and not self._discarded:
                yield (piece := self._read(file.fileno(), self._part))
                left -= len(piece)
                self._advance(len(piece))
            self._waiting.set()
            self._decided.wait()
            if self._discarded:
                raise _Discarded
            yield self._read(file.fileno(), left)
            self._advance(left)

    def _read(self, file: int, count: int) -> bytes:
        data = os.read(file, count)
        while len(data) < count:
            more = os.read(file, count - len(data))
            if not more:
                raise ValueError(f"{self._path} became shorter while it was uploaded")
            data += more
        return data


@atexit.register
def _discard_all() -> None:
    """At the end of the process: a thread of Python's must not come back into it then."""
    for upload in list(_live):
        with suppress(RuntimeError):
            upload.discard(timeout=2.0)


def _forget() -> None:
    _live.clear()  # of a forked child: its parent's, whose threads are not here


os.register_at_fork(after_in_child=_forget)
