"""Train and test the probing classifiers of Li et al. 2019."""

from hf_capsule_mt.cli.probe import main

if __name__ == "__main__":
    main()
