"""Make the probing tasks that need no parser from any tokenised text."""

from hf_capsule_mt.cli.generate_probing import main

if __name__ == "__main__":
    main()
