"""A folder of images becomes thumbnails and a contact sheet: three bodies that pass keys, not bytes.

    python examples/thumbnails.py                              # draws 24 images of its own, in ./thumbnails
    python examples/thumbnails.py --images ~/Pictures          # or takes yours
    python examples/thumbnails.py --storage s3://bucket/album  # the same, in an object store

Kill it half way and run it again: each step has a `_key`, so what has been done is found and not done again.
Needs the extra `pillow`, and `storage` for an object store: pip install 'lakeshore-queue[pillow,storage]'
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageOps

import dreamlake.lakeshore as dls

SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".webp"}
SIDE, COLUMNS = 160, 6  # of a thumbnail, in pixels; of the sheet


@dls.udf
def draw(count: int, seed: int) -> Iterator[str]:
    """Images that nobody has seen before, always the same ones for a seed. Yields their keys."""
    for number in range(count):
        random = Random(f"{seed}/{number}")
        image = Image.new("RGB", (640, 480), (random.randrange(256), random.randrange(256), 64))
        pen = ImageDraw.Draw(image)
        for _ in range(40):
            x, y, size = random.randrange(640), random.randrange(480), random.randrange(20, 120)
            color = (random.randrange(256), random.randrange(256), random.randrange(256))
            pen.ellipse((x, y, x + size, y + size), fill=color)
        image.save(dls.run.write(f"images/{number:04}.png"))
        yield f"images/{number:04}.png"


@dls.udf
def collect(folder: str) -> Iterator[str]:
    """The images of a folder of this machine, as objects. Yields their keys."""
    for path in sorted(Path(folder).iterdir()):
        if path.suffix.lower() in SUFFIXES:
            dls.run.write(f"images/{path.name}").write_bytes(path.read_bytes())
            yield f"images/{path.name}"


@dls.udf(retries=2)
def thumbnail(key: str) -> str:
    """A small square of an image; the key of it."""
    with Image.open(dls.run.read(key)) as image:
        small = ImageOps.fit(image.convert("RGB"), (SIDE, SIDE))
    target = f"thumbnails/{Path(key).name}.jpg"
    small.save(dls.run.write(target))
    return target


@dls.udf
def contact_sheet(keys: list[str]) -> str:
    """All thumbnails on one page; the key of it."""
    rows = -(-len(keys) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * SIDE, rows * SIDE), "white")
    for number, path in enumerate(dls.run.read_all(keys)):
        with Image.open(path) as small:
            sheet.paste(small, (number % COLUMNS * SIDE, number // COLUMNS * SIDE))
    sheet.save(dls.run.write("sheet.jpg"))
    return "sheet.jpg"


def chain(q: dls.Dispatch, images: str | None, count: int, seed: int, storage: str) -> str:
    """Submit the three steps, each when it knows the keys of the one before; the key of the sheet."""
    if images is None:
        first = draw.submit(count, seed, _key=f"draw {count} {seed} into {storage}")
    else:
        first = collect.submit(images, _key=f"collect {images} into {storage}")
    keys: list[str] = list(q.stream(first).values())
    small: list[str] = []
    for inv in thumbnail.submit_many({"key": key, "_key": f"{first} {key}"} for key in keys):
        small.append(q.result(inv))
        print(small[-1], flush=True)
    return q.result(contact_sheet.submit(small, _key=f"{first} sheet"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Thumbnails and a contact sheet of a folder of images.")
    parser.add_argument("--images", help="a folder of images; without it, some are drawn")
    parser.add_argument("--count", type=int, default=24, help="how many to draw")
    parser.add_argument("--seed", type=int, default=7, help="which ones")
    parser.add_argument("--work", type=Path, default=Path("thumbnails"), help="the folder of the plane")
    parser.add_argument(
        "--storage", help="a folder or s3://bucket/prefix; else files/ in the folder of the plane"
    )
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count: draw 1 image or more")
    if options.images is not None and not Path(options.images).expanduser().is_dir():
        parser.error(f"--images {options.images}: there is no such folder")
    options.work.mkdir(parents=True, exist_ok=True)
    images = None if options.images is None else str(Path(options.images).expanduser().resolve())

    storage, stop, ran = options.storage or options.work / "files", threading.Event(), list[int]()
    with dls.Dispatch(options.work / "plane.db", storage=storage) as q:
        worker = threading.Thread(target=lambda: ran.append(dls.run_worker(q, slots=2, stop=stop)))
        worker.start()
        try:
            sheet = chain(q, images, options.count, options.seed, str(storage))
        finally:
            stop.set()
            worker.join()
        print(f"{sheet} in {storage}, after {ran[0]} bodies")


if __name__ == "__main__":
    main()
