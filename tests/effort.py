"""How much is drawn at random: `make full` draws what a night is worth."""

import os

FULL = os.environ.get("CORAG_TESTS") == "full"
