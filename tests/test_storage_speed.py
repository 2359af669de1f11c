"""The measurement of large files runs, on small ones. What it measures is never asserted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from s3 import S3
from s3 import begun as begun
from s3 import s3 as s3

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "storage.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_storage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_measures(
    script: ModuleType, s3: S3, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def measured(who: str, way: str, url: str, size: int) -> dict[str, float]:
        found = script.one(who, way, url, tmp_path / who, size)
        if (tmp_path / who / "source").exists():
            (tmp_path / who / "source").unlink()
        return found

    for who in script.WAYS:
        (tmp_path / who).mkdir()
    monkeypatch.setattr(script, "measured", measured)
    for place in (str(tmp_path / "files"), s3.url):
        script.table(place, 9 << 20, 1)
    said = capsys.readouterr().out
    assert said.count("MiB/s") == 6
    assert said.count("x of the library alone") == 2
