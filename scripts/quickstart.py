"""Train a small model on the built-in corpus and show what it translates."""

from hf_capsule_mt.cli.quickstart import main

if __name__ == "__main__":
    main()
