"""Completion scripts: shells take them, and they know the commands."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lakeshore.cli import main

WORDS = ["queues", "unarchive", "bulk-cancel", "--elasticity", "pool-with-threshold", "--url"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_its_script(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [*os.environ]:
        if name.startswith(("XDG_", "ZSH", "BASH_COMPLETION")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["completion", shell, "--install"]) == 0
    out, err = capsys.readouterr()
    assert (out, err[:11]) == ("", "written to ")
    path = Path(err.removeprefix("written to ").partition(";")[0])
    assert path.is_relative_to(tmp_path)
    script = path.read_text()
    assert [word for word in WORDS if word in script] == WORDS
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    ask = """
    source "$1"
    complete -p lakeshore >/dev/null
    function ask {
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _lakeshore
        echo "${COMPREPLY[@]}"
    }
    ask lakeshore que
    ask lakeshore queues un
    ask lakeshore queues add a --el
    ask lakeshore queues add a --elasticity pool
    """
    command = ["bash", "-c", ask, "bash", str(tmp_path / "script")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["queues", "unarchive", "--elasticity", "pool-with-threshold"]
