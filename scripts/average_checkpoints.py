"""Average the weights of several checkpoints; see --help."""

from hf_capsule_mt.cli.average_checkpoints import main

if __name__ == "__main__":
    main()
