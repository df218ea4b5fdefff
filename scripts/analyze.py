"""Look inside a model: statistics and pictures of its routing over a corpus."""

from hf_capsule_mt.cli.analyze import main

if __name__ == "__main__":
    main()
