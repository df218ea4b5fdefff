"""Make a report folder from the records of a study."""

from hf_capsule_mt.cli.ablation_report import main

if __name__ == "__main__":
    main()
