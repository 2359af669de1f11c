"""A task queue inside a FastAPI application: the plane and its worker live as long as the app does.

    uvicorn examples.fastapi_app:app         # or: hypercorn examples.fastapi_app:app
    curl -X POST 'localhost:8000/jobs?below=100'
    curl localhost:8000/jobs/ID
    curl -N localhost:8000/jobs/ID/stream

The plane is a file in LAKESHORE_HOME, so ids stay good when the app is restarted.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse

import dreamlake.lakeshore as dls


@dls.udf
def primes(below: int) -> Iterator[int]:
    """Yield every prime below a limit, and return how many there are."""
    found: list[int] = []
    for number in range(2, below):
        if all(number % prime for prime in found if prime * prime <= number):
            found.append(number)
            yield number
    return len(found)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the plane, start a worker; at the end let running bodies finish."""
    async with dls.AsyncDispatch() as q, anyio.create_task_group() as tasks:
        stop = anyio.Event()
        await tasks.start(partial(dls.arun_worker, q, slots=4, grace=5.0, stop=stop))
        app.state.q = q
        yield
        stop.set()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(dls.NotFound)
async def not_found(request: Request, error: dls.NotFound) -> JSONResponse:
    """An unknown id."""
    return JSONResponse({"detail": str(error)}, error.code)


@app.post("/jobs", status_code=202)
async def submit(request: Request, below: int) -> dict[str, str]:
    """Accept a job: its id is stored before this answers."""
    return {"id": await request.app.state.q.submit(primes, below)}


@app.get("/jobs/{inv}")
async def show(request: Request, inv: str) -> dict[str, Any]:
    """Where a job is, with its result once there is one."""
    q: dls.AsyncDispatch = request.app.state.q
    job = await q.get(inv)
    result = await q.result(inv) if job.state is dls.State.SUCCEEDED else None
    return {"id": inv, "state": job.state, "result": result, "error": job.error}


@app.get("/jobs/{inv}/stream")
async def stream(
    request: Request, inv: str, last_event_id: Annotated[int, Header()] = -1
) -> StreamingResponse:
    """Its values as server-sent events; a browser that comes back goes on where it was."""
    q: dls.AsyncDispatch = request.app.state.q
    await q.get(inv)  # an unknown id is a 404, not a broken stream
    return StreamingResponse(events(q, inv, since=last_event_id + 1), media_type="text/event-stream")


async def events(q: dls.AsyncDispatch, inv: str, since: int) -> AsyncIterator[str]:
    """One event a frame, and one for the end."""
    try:
        async with q.stream(inv, since=since) as frames:
            async for frame in frames:
                yield f"id: {frame.seq}\ndata: {json.dumps(frame.value)}\n\n"
        yield f"event: end\ndata: {json.dumps(await q.result(inv))}\n\n"
    except dls.LakeshoreError as error:
        yield f"event: error\ndata: {json.dumps(str(error).splitlines()[0])}\n\n"
