"""Settings every test runs under. Pytest puts this folder on sys.path, hence `from reference import ...`."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
