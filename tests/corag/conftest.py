import os

from hypothesis import settings

# Nothing here may ask a hub, whatever the machine allows.
os.environ["HF_HUB_OFFLINE"] = "1"

# A busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
