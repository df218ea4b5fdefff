"""Serve a page that shows how checkpoints translate and route a sentence; see --help."""

from hf_capsule_mt.cli.demo import main

if __name__ == "__main__":
    main()
