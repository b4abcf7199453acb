"""`python -m storage FOLDER ...` seals checkpoints as they are; see `storage.seal_again`."""

import sys
from pathlib import Path

from storage import seal_again

if __name__ == "__main__":
    for folder in sys.argv[1:]:
        seal_again(Path(folder))
