"""What went wrong, as one line that says what to do, and whether it may pass by itself."""

from __future__ import annotations

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager

from lakeshore.core.errors import KeyNotFound, LakeshoreError, StorageFailed

from .retrying import Passing

_PASSING_DISK = {errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ETIMEDOUT}
_ADVICE_DISK = {
    errno.ENOSPC: "no space left: make room, then try again",
    errno.EDQUOT: "no space left for this user (quota): make room, then try again",
    errno.EACCES: "permission denied: give this user the right to read and write there",
    errno.EPERM: "not permitted: give this user the right to read and write there",
    errno.EROFS: "it can only be read: the file system is mounted read-only",
    errno.ENAMETOOLONG: "the name is longer than the file system takes: use a shorter key",
}


@contextmanager
def disk_troubles(key: str, url: str, *, may_pass: bool = False) -> Generator[None]:
    """Turn what a disk says into `StorageFailed`, or, if wanted, `Passing` where trying again may help."""
    try:
        yield
    except OSError as error:
        if isinstance(error, LakeshoreError):
            raise
        code = error.errno or 0
        reason = _ADVICE_DISK.get(code) or error.strerror or str(error)
        failure = StorageFailed(key, url, reason)
        raise Passing(failure) if may_pass and code in _PASSING_DISK else failure from error


_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Z][A-Za-z ]+))?")
_XML = re.compile(r"<(Code|Message)>([^<]*)</\1>")
_DEEP = re.compile(r'message: "([^"]+)"')
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")
_USER = re.compile(r"(https?://)[^/\s@]+@")
_ASKED_FOR_CREDENTIALS = ("169.254.169.254", "latest/api/token", "metadata.google", "computeMetadata")

_ADVICE = {
    "NoSuchBucket": "create it, or correct the storage's URL",
    "ContainerNotFound": "create it, or correct the storage's URL",
    "PermissionDeniedError": "check the credentials and what they are allowed to do",
    "UnauthenticatedError": "check the credentials",
    "NotSupportedError": "this storage can't do it",
}
NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profile files need boto3: "
    "pip install 'lakeshore-queue[ec2]'), GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY"
)


@contextmanager
def object_troubles(key: str, url: str) -> Generator[None]:
    """Turn what obstore raises into `KeyNotFound`, `StorageFailed`, or `Passing` where it may help to try
    again. A failed precondition, and what a local disk says, is passed on as it is."""
    try:
        yield
    except LakeshoreError:
        raise
    except Exception as error:
        raise _translated(error, key, url) from error


def _translated(error: Exception, key: str, url: str) -> Exception:
    name, text = type(error).__name__, str(error)
    if isinstance(error, OSError) and error.errno:  # of a local file that is read or written
        return error
    if name in ("PreconditionError", "AlreadyExistsError", "NotModifiedError", "Passing"):
        return error
    codes = dict(_XML.findall(text))
    code, status = codes.get("Code", ""), _STATUS.search(text)
    if isinstance(error, FileNotFoundError) and code not in ("NoSuchBucket", "ContainerNotFound"):
        return KeyNotFound(key, url)
    failure = StorageFailed(key, url, _reason(name, text, codes))
    final = name != "GenericError" or (status is not None and _is_final(int(status[1])))
    return failure if final else Passing(failure)


def _is_final(status: int) -> bool:
    return 300 <= status < 500 and status not in (408, 409, 425, 429)


def _reason(name: str, text: str, codes: dict[str, str]) -> str:
    """One line, without what Rust adds for its programmers, and without secrets."""
    code, status = codes.get("Code", ""), _STATUS.search(text)
    if code:
        said = f"{codes.get('Message', '').rstrip('.')} ({code})" if codes.get("Message") else code
    elif status is not None:
        said = f"the server answered {status[1]} {status[2] or ''}".strip()
    elif any(each in text for each in _ASKED_FOR_CREDENTIALS):
        said = NO_CREDENTIALS
    else:
        said = _innermost(text)
    advice = _ADVICE.get(code) or _ADVICE.get(name)
    return f"{said}: {advice}" if advice else said


def _innermost(text: str) -> str:
    deep = _DEEP.findall(text)
    plain, _, debug = text.partition("\n\nDebug source:")
    line = " ".join(plain.split())
    line = _USER.sub(r"\1", _QUERY.sub(r"\1", line.rpartition(" - ")[2] or line))
    if "TimedOut" in debug and not deep:
        return f"{line} (timed out)"
    return f"{line} ({deep[-1]})" if deep else line
