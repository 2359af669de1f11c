"""`lakeshore config`."""

from __future__ import annotations

from . import plane, printing
from .app import arrange, group
from .parameters import Json

app = group("config", "Which plane, as whom, and why.")


@app.command
def show(*, json: Json = False) -> None:
    """Where the address, the namespace, the token and the certificates come from. Tokens are not shown.

    Example: lakeshore config show
    """
    from lakeshore.sdk import address, credentials

    named = plane.named()
    url = address.address_found(named.url)
    where = str(url.value)
    token = address.token_found(where, named.token)
    if token.value is not None:
        token = token._replace(value=credentials.hint(token.value))
        try:
            address.check_private(where)
        except ValueError as error:
            printing.note(f"the token is not sent: {error}")
    found = {
        "url": url,
        "namespace": address.namespace_found(named.namespace, where),
        "token": token,
        "ca": address.ca_found(where, named.ca),
        "home": address.home_found(),
    }
    settings = {
        name: (value, f"--{name}" if source == address.GIVEN else source)
        for name, (value, source) in found.items()
    }
    document = {name: {"value": value, "source": source} for name, (value, source) in settings.items()}
    lines = [
        (name, printing.cell(value), source if value is not None else "-")
        for name, (value, source) in settings.items()
    ]
    part = printing.Part(("SETTING", "VALUE", "FROM"), lines)
    printing.show(printing.View(document, (part,)), json)


@app.command
def schema() -> None:
    """Print the JSON Schema of lakeshore.yaml, for editors.

    Example: lakeshore config schema > lakeshore.schema.json
    """
    from lakeshore.sdk.manifest import schema_text

    print(schema_text(), end="")


arrange(app)
