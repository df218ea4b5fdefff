"""Measure the latency of single sentences."""

from hf_capsule_mt.cli.latency import main

if __name__ == "__main__":
    main()
