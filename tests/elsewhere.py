"""Run Python where this package cannot be imported, as on the machine of somebody who only has Transformers."""

import json
import os
import subprocess
import sys

_BLOCKED = """
import gc, json, sys
# While modules are imported it looks through all of them again and again, and finds nothing.
gc.disable()
# Every import of them fails.
sys.modules.update(dict.fromkeys(["hf_capsule_mt", "accelerate", "peft", "scipy", "torchao"]))
import torch
from transformers import logging
logging.set_verbosity_error()
logging.disable_progress_bar()
gc.enable()
found = {}
"""


def run_elsewhere(code, tmp_path, environment=None, **names):
    """Run `code` with the `names` defined, and return what it puts into the dictionary `found`.

    Without an `environment` there is no Hub.
    """
    definitions = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    result = tmp_path / "found.json"
    ending = f"\nwith open({str(result)!r}, 'w') as file:\n    json.dump(found, file)\n"
    environment = {
        **os.environ,
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **(environment or {}),
    }
    process = subprocess.run(
        [sys.executable, "-c", _BLOCKED + definitions + code + ending],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(result.read_text())
