"""Measure how time grows with the length of sentences."""

from hf_capsule_mt.cli.growth import main

if __name__ == "__main__":
    main()
