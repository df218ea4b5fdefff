"""Run the training command once for each list of arguments in a JSON file: python several_runs.py runs.json."""

import json
import sys
from pathlib import Path

from hf_capsule_mt.cli.train import main

if __name__ == "__main__":
    for arguments in json.loads(Path(sys.argv[1]).read_text()):
        main(arguments)
