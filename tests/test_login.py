"""`lakeshore login`, `logout` and `config show`."""

from __future__ import annotations

import io
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from cli import Done
from terminal import at_terminal

from lakeshore.cli import main
from lakeshore.sdk import credentials
from lakeshore.sdk.serving import Serving, serve

TOKEN, OTHER = "lks_" + "a" * 36 + "wxyz", "lks_" + "b" * 40
SAFE = "tls://head:7420"

Run = Callable[..., Done]


@pytest.fixture
def lakeshore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line, with a token on standard input."""
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))

    def run(*words: str, text: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        status, printed = main(words), capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run


def test_a_token_from_a_pipe_is_kept(lakeshore: Run) -> None:
    done = lakeshore("login", "--url", "tls://Head", "--no-check", "--namespace", "n", text=f"{TOKEN}\n")
    assert done == Done(0, "logged in to tls://head:7420 (unchecked)\n", "")
    assert credentials.saved() == credentials.Saved(SAFE, {SAFE: credentials.Login(TOKEN, "n")})
    again = lakeshore("login", "--no-check", "--json", text=OTHER)  # at the last one
    assert again.json == {"url": SAFE, "namespace": None, "token": "lks_…bbbb"}
    assert credentials.saved().logins[SAFE].token == OTHER


def test_a_token_on_the_command_line_is_refused(lakeshore: Run) -> None:
    done = lakeshore("login", "--url", SAFE, "--token", TOKEN, "--no-check")
    assert done.status == 2
    assert (
        "login takes no --token: what is on a command line, every user of this machine can read" in done.err
    )
    assert TOKEN not in done.err + done.out
    assert credentials.saved().logins == {}


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        ((), TOKEN, "name the head: --url tls://host:7420 (a path needs no login)"),
        (("--url", "plane.db"), TOKEN, "name the head"),
        (("--url", "http://x"), TOKEN, "http:// is not spoken here"),
        (("--url", SAFE), "", "this is no token: one begins with lks_"),
        (("--url", SAFE), "two words", "this is no token"),
        (("--url", SAFE), "x" * 5000, "this is no token"),
        (("--url", SAFE, "--namespace", ""), TOKEN, "is not a namespace"),
        (("--url", SAFE, "--ca", "no.pem"), TOKEN, "no.pem (from argument) is no file"),
        (
            ("--url", "tcp://head"),
            TOKEN,
            "is plain TCP to another machine, where anyone on the way can read the",
        ),
    ],
)
def test_what_login_does_not_take(lakeshore: Run, words: tuple[str, ...], text: str, said: str) -> None:
    done = lakeshore("login", "--no-check", *words, text=text)
    assert (done.status, done.out, said in done.err) == (2, "", True), done.err
    assert text == "" or text not in done.err
    assert credentials.saved().logins == {}


def test_plain_tcp_where_it_was_asked_for(lakeshore: Run) -> None:
    done = lakeshore("login", "--url", "tcp://head", "--no-check", "--insecure", text=TOKEN)
    assert done.status == 0
    assert credentials.saved().logins["tcp://head:7420"].insecure
    shown = lakeshore("config", "show", "--json")
    assert shown.err == ""
    assert shown.json["token"] == {"value": "lks_…wxyz", "source": "saved login"}


@pytest.fixture
def head(lakeshore: Run, tmp_path: Path) -> Iterator[str]:
    """A head on this machine, and its address."""
    ready: queue.Queue[str] = queue.Queue()

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            serving = Serving(str(tmp_path / "plane.db"), listen=("tcp://127.0.0.1:0",), sync="normal")
            serve_it = partial(serve, serving, signals=False)
            (address,) = await tasks.start(serve_it)
            ready.put(address)
            await anyio.to_thread.run_sync(over.wait, 120)
            tasks.cancel_scope.cancel()

    over = threading.Event()
    thread = threading.Thread(target=anyio.run, args=(run,))
    thread.start()
    try:
        yield ready.get(timeout=60)
    finally:
        over.set()
        thread.join()


def test_the_head_says_who_the_token_is_for(lakeshore: Run, head: str) -> None:
    own = credentials.machine_token()
    done = lakeshore("login", "--url", head, text=own)
    assert done == Done(0, f"logged in to {head} as the owner of the whole plane\n", "")
    made = lakeshore("tokens", "create", "--namespace", "n", "--role", "submit").out.strip()
    assert lakeshore("login", text=made).out == f"logged in to {head} as submit of the namespace n\n"
    assert credentials.saved().logins == {head: credentials.Login(made)}
    for token, status, said in [(OTHER, 1, "401 Unauthorized"), ("x y", 2, "this is no token")]:
        refused = lakeshore("login", text=token)
        assert (refused.status, said in refused.err) == (status, True), refused.err
        assert token not in refused.err
    other = lakeshore("login", "--namespace", "m", text=made)
    assert (other.status, "403 Forbidden" in other.err) == (1, True), other.err
    assert credentials.saved().logins == {head: credentials.Login(made)}  # each left it as it was


def test_a_token_that_a_head_can_not_be_asked_about_is_not_kept(lakeshore: Run) -> None:
    done = lakeshore("login", "--url", "tls://127.0.0.1:1", text=TOKEN)
    assert done.status == 1
    assert "Traceback" not in done.err
    assert credentials.saved().logins == {}


def test_the_prompt_hides_what_is_typed(tmp_path: Path) -> None:
    """At a terminal the token is asked for, and not echoed."""
    status, shown = at_terminal(
        *("login", "--url", SAFE, "--no-check"),
        environment={"LAKESHORE_HOME": str(tmp_path)},
        typed={f"Token for {SAFE}: ": TOKEN},
    )
    assert (status, TOKEN in shown) == (0, False)
    assert f"logged in to {SAFE} (unchecked)" in shown
    assert TOKEN in (tmp_path / "credentials.json").read_text()


def test_nothing_typed_at_the_prompt(tmp_path: Path) -> None:
    status, shown = at_terminal(
        *("login", "--url", SAFE, "--no-check"),
        environment={"LAKESHORE_HOME": str(tmp_path)},
        typed={f"Token for {SAFE}: ": "\x04"},  # Ctrl-D
    )
    assert (status, "this is no token" in shown, "Traceback" in shown) == (2, True, False)


def test_logging_out(lakeshore: Run) -> None:
    for number in range(3):
        lakeshore("login", "--url", f"tls://head{number}", "--no-check", text=TOKEN)
    assert lakeshore("logout").out == "logged out of tls://head2:7420\n"
    assert lakeshore("logout", "--url", "tls://head0").out == "logged out of tls://head0:7420\n"
    missing = lakeshore("logout", "--url", "tls://head0")
    assert (missing.status, missing.err) == (
        1,
        "there is no login at tls://head0:7420 (there are: tls://head1:7420)\n",
    )
    assert lakeshore("logout").status == 2  # no head is meant any more
    assert lakeshore("logout", "--all", "--json").json == {"urls": ["tls://head1:7420"]}
    assert lakeshore("logout", "--all").out == "logged out of nothing\n"


def test_where_each_value_comes_from(lakeshore: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sources(*words: str) -> dict[str, str]:
        return {
            name: found["source"]
            for name, found in lakeshore("config", "show", "--json", *words).json.items()
        }

    first = {"url": "default", "namespace": "default", "token": "default", "ca": "default"}
    assert sources() == {**first, "home": "LAKESHORE_HOME"}
    (tmp_path / "ca.pem").touch()
    lakeshore("login", "--url", SAFE, "--no-check", "--namespace", "n", "--ca", "ca.pem", text=TOKEN)
    assert set(sources().values()) == {"saved login", "LAKESHORE_HOME"}
    for name, value in {
        "URL": SAFE,
        "NAMESPACE": "m",
        "TOKEN": OTHER,
        "CA": str(tmp_path / "ca.pem"),
    }.items():
        monkeypatch.setenv(f"LAKESHORE_{name}", value)
    assert sources() == {
        name: f"LAKESHORE_{name.upper()}" for name in ("url", "namespace", "token", "ca", "home")
    }
    flags = ("--url", SAFE, "--namespace", "o", "--token", TOKEN, "--ca", "ca.pem")
    assert sources(*flags) == {**{name: f"--{name}" for name in first}, "home": "LAKESHORE_HOME"}
    table = lakeshore("config", "show", *flags)
    assert [line.split() for line in table.out.splitlines()][:4] == [
        ["SETTING", "VALUE", "FROM"],
        ["url", SAFE, "--url"],
        ["namespace", "o", "--namespace"],
        ["token", "lks_…wxyz", "--token"],
    ]
    assert TOKEN not in table.out


def test_config_show_tells_what_would_not_be_sent(lakeshore: Run) -> None:
    shown = lakeshore("config", "show", "--url", "tcp://head", "--token", TOKEN)
    assert shown.status == 0
    assert shown.err.startswith("the token is not sent: tcp://head:7420 is plain TCP to another machine")
