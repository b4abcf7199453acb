"""Adapters: small trained parts on an encoder that is already there, each a folder that explains itself."""

from corag.models.trained.folder import Adapter as Adapter
from corag.models.trained.folder import AdapterConfig as AdapterConfig
from corag.models.trained.folder import load_adapter as load_adapter
from corag.models.trained.folder import save_adapter as save_adapter
from corag.models.trained.folder import shipped_adapter as shipped_adapter
