"""Write a model card from the records of a run."""

from hf_capsule_mt.cli.write_model_card import main

if __name__ == "__main__":
    main()
