"""The page of the demo command, served on a free port of this machine by a thread."""

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from loopback import free_port

from hf_capsule_mt.cli.demo import build_demo

# To import it takes five seconds, and every process that runs tests collects them all.
needs_gradio = pytest.mark.skipif(find_spec("gradio") is None, reason='the page needs Gradio; pip install -e ".[demo]"')
CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
MARIAN, CAPS_NMT = (
    str(CHECKPOINTS / name) for name in ("multi30k-en-de-head-em-routing", "multi30k-en-de-capsnmt-hybrid")
)


@contextmanager
def served(*models, **options):
    """Its address, while it is served."""
    from hf_capsule_mt.analysis.demo_page import launch_page

    page = build_demo(models, device="cpu", **options)
    launch_page(page, "127.0.0.1", free_port(), prevent_thread_lock=True, quiet=True)
    try:
        yield page.local_url
    finally:
        page.close(verbose=False)
