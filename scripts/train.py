"""Train or fine-tune a translation model."""

from hf_capsule_mt.cli.train import main

if __name__ == "__main__":
    main()
