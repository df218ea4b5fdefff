"""Write a split of a data set of the Hub as text files."""

from hf_capsule_mt.cli.export_text import main

if __name__ == "__main__":
    main()
