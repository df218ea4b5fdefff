"""Train, translate, score and tabulate the rows of a YAML file."""

from hf_capsule_mt.cli.ablate import main

if __name__ == "__main__":
    main()
