"""Values that are computed once: a bounded cache in RAM, with a SQLite file behind it where one is given."""

from corag.memory.memory import TEXT as TEXT
from corag.memory.memory import Codec as Codec
from corag.memory.memory import Memory as Memory
from corag.memory.memory import megabytes as megabytes
from corag.memory.memory import structs as structs
from corag.memory.store import Store as Store
from corag.memory.store import Use as Use
from corag.memory.store import forget as forget
from corag.memory.store import shared_store as shared_store
from corag.memory.store import usage as usage
