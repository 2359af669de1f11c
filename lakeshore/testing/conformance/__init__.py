"""What every implementation of a port must do, as pytest classes to subclass. See each module.

Needs pytest, and the plugin that comes with anyio.
"""

from .link import LinkConformance
from .storage import StorageConformance
from .store import StoreConformance

__all__ = ["LinkConformance", "StorageConformance", "StoreConformance"]
