"""Translate with a trained model. See --help."""

from hf_capsule_mt.cli.translate import main

if __name__ == "__main__":
    main()
