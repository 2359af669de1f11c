"""Writes docs/cli.md, the reference of the command line, from the commands themselves.

python scripts/cli_reference.py; `tests/test_cli_reference.py` fails where the page is another.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lakeshore.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

HEAD = """# Command line

Made by `scripts/cli_reference.py` from the commands; `lakeshore COMMAND --help` says the same.

## How commands behave

- **Which plane.** `--url`, else `LAKESHORE_URL`, else what `lakeshore login` saved, else this machine's own
  plane, `LAKESHORE_HOME/<hostname>/plane.db`. `--url`, `--namespace`, `--token` and `--ca` stand before the
  command or after it, but before a `--`.
- **Output.** Results go to stdout, remarks to stderr. At a terminal there are tables; elsewhere one row is
  one line, columns are two spaces or more apart, nothing is cut or coloured, and what is empty is `-`.
- **`--json`** prints exactly one JSON document; commands that follow something (`jobs stream`,
  `jobs logs --follow`, `topics read`, `--watch`) print JSON Lines. Names of fields are camelCase; inside
  `admission`, `elasticity` and `daemonTemplate` they are snake_case. Times are ISO 8601 in UTC.
- **Exit status.** 0: done. 1: refused or failed, with one line on stderr that begins with a code and its name
  (`409 Conflict: …`, `404 NotFound: …`). 2: wrong usage, judged before the plane is asked. 130: Ctrl-C.
  A reader that goes away (`lakeshore jobs list | head -1`) is no failure: 0, without a word.
- **`--watch`** prints again when something changed, and looks every two seconds; Ctrl-C ends it with 0.
- **Names and ids.** A queue, a worker, a provider and a token may be named by either. Names of queues are
  lower-case letters, digits and hyphens.
- **Elasticity** is spelled with hyphens here (`pool-with-threshold`), with underscores in `lakeshore.yaml`.
- **`queues events --limit`** above 200 gives 200, with a remark; `jobs list --limit` above 200 is wrong.
- `LAKESHORE_DEBUG=1` shows the traceback of what failed.
"""


def page() -> str:
    """The whole page."""
    sys.argv = ["lakeshore"]  # by which commands call themselves
    text = app.generate_docs(output_format="markdown", heading_level=1)
    text = text[text.index("\n## lakeshore ") :]  # what is before it is a list of what follows
    everywhere = re.compile(r"\*\*Options of every command\*\*:\n\n(\* .*\n)+\n?")
    text = everywhere.sub("", text)
    text = re.sub(r"^Example: (.*)$", r"```bash\n\1\n```", text, flags=re.MULTILINE)
    text = text.replace(" *[default: False]*", "").replace(' *[default: ""]*', "")
    return f"{HEAD}{text.rstrip()}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
