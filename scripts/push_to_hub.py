"""Send a checkpoint to the Hub."""

from hf_capsule_mt.cli.push_to_hub import main

if __name__ == "__main__":
    main()
