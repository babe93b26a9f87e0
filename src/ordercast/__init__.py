"""Group communication for Python with the consistency you choose."""

from ordercast.errors import OrdercastError
from ordercast.types import Event, NodeId, View

__version__ = "0.1.0"

__all__ = ["Event", "NodeId", "OrdercastError", "View", "__version__"]
