"""The groups of verbs for what belongs to the whole plane, as coroutines: `q.providers` and `q.tokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from . import offices
from .choices import ProviderChanges, ProviderKind, Role
from .records import NewToken, ProviderInfo, TokenInfo

if TYPE_CHECKING:
    from .aio import AsyncDispatch


class AsyncProviders:
    """Administration of providers, which belong to the plane and to no namespace.

    This version stores them; what they launch comes with elasticity.
    """

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def add(
        self, name: str, *, kind: ProviderKind, config: dict[str, Any] | None = None, max: int | None = None
    ) -> ProviderInfo:
        """Create a provider.

        Args:
            kind: local, ssh, slurm, kubernetes, ec2 or command.
            config: settings of that kind.
            max: how many daemons at once; None for no limit.

        Raises: ValueError for another kind, Conflict where the name exists.
        """
        return await self._face.run(offices.add_provider(name, kind, config, max))

    async def list(self) -> list[ProviderInfo]:
        """Every provider, by name."""
        return await self._face.run(offices.list_providers())

    async def show(self, name: str) -> ProviderInfo:
        """One provider, by name or id."""
        return await self._face.run(offices.show_provider(name))

    async def patch(self, name: str, **changes: Unpack[ProviderChanges]) -> ProviderInfo:
        """Change `max`, or the whole `config`."""
        return await self._face.run(offices.patch_provider(name, {**changes}))

    async def remove(self, name: str) -> ProviderInfo:
        """Delete a provider. Raises Conflict while a queue names it."""
        return await self._face.run(offices.remove_provider(name))


class AsyncTokens:
    """Administration of tokens. Each opens one namespace, in one role."""

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def create(self, role: Role, *, namespace: str | None = None, name: str = "") -> NewToken:
        """Make a token. Its text is in the answer and nowhere else: the plane keeps a hash.

        Args:
            role: submit, read, work or admin.
            namespace: which it opens, and which exists from now on; None is that of this face.
            name: for people.
        """
        return await self._face.run(offices.create_token(role, namespace, name))

    async def list(self, namespace: str | None = None) -> list[TokenInfo]:
        """Tokens, oldest first: of one namespace, or all that one may see."""
        return await self._face.run(offices.list_tokens(namespace))

    async def remove(self, token: str) -> TokenInfo:
        """Revoke a token, by id or name; whoever came in with it is cut off."""
        return await self._face.run(offices.remove_token(token))
