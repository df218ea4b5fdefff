"""Run the training command for each pair of environment and arguments in a JSON file: several_runs.py runs.json."""

import json
import os
import sys
from pathlib import Path

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

from hf_capsule_mt.cli.train import main


def allow_fsdp_on_cpus():
    """Let accelerate spread weights over processes on CPUs, as it does on every accelerator."""
    init = AcceleratorState.__init__

    def init_with_plugin(self, *args, fsdp_plugin=None, **kwargs):
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init_with_plugin


if __name__ == "__main__":
    allow_fsdp_on_cpus()
    before = dict(os.environ)
    for environment, arguments in json.loads(Path(sys.argv[1]).read_text()):
        # As accelerate's launcher would have made it.
        os.environ.update(environment)
        main(arguments)
        os.environ.clear()
        os.environ.update(before)
