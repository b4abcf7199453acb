"""Where the source tree lies, the trees and predictions recorded in it, and the data folders beside it."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
DATA = Path(os.environ.get("CORAG_DATA", ROOT.parent / "shared" / "data"))
