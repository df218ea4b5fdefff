"""Translate a training corpus with a teacher."""

from hf_capsule_mt.cli.distill import main

if __name__ == "__main__":
    main()
