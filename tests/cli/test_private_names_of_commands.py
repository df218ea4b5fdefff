"""Private names of argparse and PyTorch that the commands read, because there is no public one."""

import argparse
import inspect

from torch.distributed import distributed_c10d


def test_the_options_of_a_parser():
    parser = argparse.ArgumentParser(add_help=False)
    action = parser.add_argument("--model", "-m")
    assert parser._actions == [action]
    assert set(parser._option_string_actions) == {"--model", "-m"}


def test_the_time_limit_of_a_group_of_processes():
    assert list(inspect.signature(distributed_c10d._set_pg_timeout).parameters) == ["timeout", "group"]
