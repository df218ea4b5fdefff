"""Compare the speed of methods with plain Marian; see --help."""

from hf_capsule_mt.cli.benchmark import main

if __name__ == "__main__":
    main()
