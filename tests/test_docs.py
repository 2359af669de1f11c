"""What README.md and docs/ show is true: their Python runs, and what they print is what is printed.

Each page is one module, whose ```python blocks run in order; a ```text block that follows one is
what it prints. A page that has tests in it is given to pytest, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import lakeshore as dls

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> Iterator[tuple[str, str | None]]:
    """Each Python block, at the lines it has in its page, and what it prints."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1], match[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and a home in it."""
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One page."""
    found = list(blocks(page))
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    try:
        for code, printed in found:
            exec(compile(code, str(page), "exec"), module.__dict__)
            assert printed is None or capsys.readouterr().out == printed
    finally:
        for value in list(vars(module).values()):
            if isinstance(value, dls.Dispatch):
                value.close()
    if any(name.startswith("test_") for name in vars(module)):
        (tmp_path / "test_page.py").write_text("\n".join(code.lstrip("\n") for code, _ in found))
        options = ["-q", "-p", "no:cacheprovider", "-W", "error"]
        command = [sys.executable, "-m", "pytest", *options, "test_page.py"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout


def test_every_public_name_has_a_reference() -> None:
    """The API page lists what `__all__` does."""
    text = (ROOT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^\.\. auto\w+:: lakeshore\.(\w+)$", text, re.MULTILINE))
    assert listed == set(dls.__all__)


def test_every_page_is_in_the_contents() -> None:
    """No page is left out, and none is missing."""
    contents = (ROOT / "docs" / "index.md").read_text().partition(":maxdepth: 1\n\n")[2].partition("```")[0]
    assert set(contents.split()) | {"index"} == {page.stem for page in PAGES} - {"README"}
