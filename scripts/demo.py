"""Train a small model on the built-in corpus and show what it translates."""

from hf_capsule_mt.cli.demo import main

if __name__ == "__main__":
    main()
