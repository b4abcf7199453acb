"""Adapters: small trained parts on an encoder that is already there, each a folder that explains itself."""

from corag.adapters.folder import Adapter as Adapter
from corag.adapters.folder import AdapterConfig as AdapterConfig
from corag.adapters.folder import load_adapter as load_adapter
from corag.adapters.folder import save_adapter as save_adapter
from corag.adapters.folder import shipped_adapter as shipped_adapter
