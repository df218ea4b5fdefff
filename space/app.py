"""The demo as a Space; its variable MODELS names the checkpoints, with spaces between them."""

import os

from hf_capsule_mt.analysis.demo_page import launch_page
from hf_capsule_mt.cli.demo import build_demo

models = os.environ.get("MODELS", "").split()
if not models:
    raise SystemExit("error: the variable MODELS names no checkpoint; set it to their names, with spaces between them")
demo = build_demo(models, fixed_models=True)

if __name__ == "__main__":
    launch_page(demo)
