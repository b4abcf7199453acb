"""Values that are computed once: a bounded cache in RAM, with a SQLite file behind it where one is given."""

from corag.memory.codecs import TEXT as TEXT
from corag.memory.codecs import Codec as Codec
from corag.memory.codecs import structs as structs
from corag.memory.memory import Memory as Memory
from corag.memory.memory import megabytes as megabytes
