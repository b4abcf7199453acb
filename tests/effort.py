"""How much is drawn at random: `make full` draws what a night is worth, `make campaign` a hundred times the usual."""

import os

FULL = os.environ.get("CORAG_TESTS") == "full"
CAMPAIGN = os.environ.get("CORAG_TESTS") == "campaign"
