"""An object on its way to a local file: in ranges, several at once, all of the very same object."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from .bucket import Bucket, Meta


def download(
    bucket: Bucket,
    meta: Meta,
    file: int,
    *,
    part: int,
    concurrency: int,
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Write an object to a file descriptor.

    Args:
        part: bytes of a range.
        concurrency: ranges under way at once.
        advance: called with the bytes that came.

    Raises: Replaced where it is not that object any more; KeyNotFound; StorageFailed; OSError of the file.
    """

    def take(offset: int, piece: bytes) -> None:
        done = 0
        while done < len(piece):
            done += os.pwrite(file, memoryview(piece)[done:], offset + done)
        advance(len(piece))

    ranges = [(start, min(start + part, meta.size)) for start in range(0, meta.size, part)]
    if len(ranges) <= 1:
        for start, end in ranges:
            bucket.read_range(meta, start, end, take)
        return
    with ThreadPoolExecutor(min(concurrency, len(ranges)), "lakeshore-download") as pool:
        futures = [pool.submit(bucket.read_range, meta, start, end, take) for start, end in ranges]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    if os.fstat(file).st_size != meta.size:
        raise OSError(errno.EIO, "the file did not become what the object is")
