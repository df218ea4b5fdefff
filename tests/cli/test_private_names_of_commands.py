"""Private names of argparse and PyTorch that the commands read, because there is no public one."""

import argparse
import inspect

from torch.distributed import distributed_c10d


def test_the_options_of_a_parser():
    parser = argparse.ArgumentParser(add_help=False)
    action = parser.add_argument("--model", "-m")
    assert parser._actions == [action]
    assert set(parser._option_string_actions) == {"--model", "-m"}


def test_the_groups_of_a_parser():
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("model")
    choice = group.add_mutually_exclusive_group(required=True)
    action = choice.add_argument("--model")
    assert parser._action_groups[-1] is group
    assert group._group_actions == [action]
    [exclusive] = parser._mutually_exclusive_groups
    assert (exclusive.required, exclusive._group_actions) == (True, [action])


def test_what_argparse_asks_a_formatter():
    class Formatter(argparse.HelpFormatter):
        def _get_help_string(self, action):
            return f"{action.help} Required."

        def _get_default_metavar_for_optional(self, action):
            return "HERE"

    parser = argparse.ArgumentParser(add_help=False, formatter_class=Formatter)
    parser.add_argument("--model", help="Which.")
    assert "--model HERE  Which. Required." in parser.format_help()


def test_the_time_limit_of_a_group_of_processes():
    assert list(inspect.signature(distributed_c10d._set_pg_timeout).parameters) == ["timeout", "group"]
