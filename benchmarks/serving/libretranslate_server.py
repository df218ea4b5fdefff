"""Start LibreTranslate with packages of a folder, for comparison with `serve`. Its environment needs nothing else.

    libretranslate-environment/bin/python benchmarks/serving/libretranslate_server.py base/packages

Its sentence splitter loads a model from the network. Here it is replaced by one that takes a text as one sentence,
which makes LibreTranslate a little faster.
"""

import os
import socket
import sys
from contextlib import redirect_stdout


def main() -> None:
    """Serve until a signal ends it."""
    [packages] = sys.argv[1:]
    # They are read when the modules are imported.
    os.environ["ARGOS_PACKAGES_DIR"] = packages
    from argostranslate import sbd
    from libretranslate.app import create_app
    from libretranslate.main import get_parser
    from waitress import serve

    sbd.MiniSBDSentencizer.split_sentences = lambda splitter, text: [text]
    with redirect_stdout(sys.stderr):
        options = get_parser().parse_args([])
        app = create_app(options)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    serve(app, sockets=[listener], threads=options.threads)


if __name__ == "__main__":
    main()
