"""What a worker says of bodies that did not succeed."""

from __future__ import annotations

import logging

import anyio
import pytest

import lakeshore as dls


@dls.udf(name="fine")
async def fine() -> None:
    return None


@dls.udf(name="wrong", retries=1, retry_delay=0.001)
async def wrong() -> None:
    raise ValueError("no such scene")


@dls.udf(name="slow", timeout=0.01)
async def slow() -> None:
    await anyio.sleep_forever()


@dls.udf(name="asks")
async def asks() -> None:
    raise dls.Retry


@pytest.mark.anyio
async def test_failures_are_logged_with_id_name_and_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakeshore")
    async with dls.AsyncDispatch(":memory:") as q:
        ids = [await q.submit(body) for body in (fine, wrong, slow)]
        await dls.arun_worker(q, drain=True)
    real = "builtins.ValueError: no such scene"
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert (
        "INFO",
        f"{ids[1]} (wrong), attempt 1 failed and will be retried: {real}",
    ) in said
    assert ("WARNING", f"{ids[1]} (wrong), attempt 2: failed: {real}") in said
    assert (
        "WARNING",
        f"{ids[2]} (slow), attempt 1: timeout: it ran longer than its timeout of 0.01 s",
    ) in said
    assert not [text for _, text in said if ids[0] in text]


@pytest.mark.anyio
async def test_a_retry_that_is_not_allowed_says_how_to_allow_it() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(asks)
        await dls.arun_worker(q, drain=True)
        with pytest.raises(dls.InvocationFailed, match=r"@udf\(retries=\.\.\.\)"):
            await q.result(inv)
