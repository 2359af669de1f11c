"""The example on images: on a folder, killed half way, resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[1] / "examples" / "thumbnails.py"

pytestmark = pytest.mark.usefixtures("home")


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """The example, at work in a folder."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(example: subprocess.Popen[str]) -> list[str]:
    """What it prints, to its good end."""
    out, err = example.communicate(timeout=60)
    assert example.returncode == 0, err
    return out.splitlines()


def test_images_of_a_folder(tmp_path: Path) -> None:
    images = tmp_path / "pictures"
    images.mkdir()
    for number, color in enumerate(["red", "blue", "green"]):
        Image.new("RGB", (300, 200), color).save(images / f"{number}.png")
    (images / "notes.txt").write_text("no image")
    *names, last = finish(start(tmp_path, "--images", images, "--work", "w"))
    assert names == [f"thumbnails/{number}.png.jpg" for number in range(3)]
    assert last.endswith("after 5 bodies")
    with Image.open(tmp_path / "w/files/sheet.jpg") as sheet:
        assert sheet.size == (960, 160)
        pixels = [sheet.getpixel((80 + 160 * number, 80)) for number in range(4)]
    assert pixels[0] != pixels[1] != pixels[2] != pixels[3]


def test_killed_half_way_and_resumed(tmp_path: Path) -> None:
    arguments = ("--count", 12)
    first = start(tmp_path, *arguments)
    assert first.stdout is not None
    done = [first.stdout.readline().strip() for _ in range(5)]
    first.kill()
    first.communicate()
    *names, last = finish(start(tmp_path, *arguments))
    assert names[:5] == done
    assert len(names) == 12
    ran = int(last.split()[-2])
    assert 1 <= ran <= 8  # the sheet, and the thumbnails that were not done
    assert finish(start(tmp_path, *arguments))[-1].endswith("after 0 bodies")
