"""Learn a joint source and target tokenizer from parallel text."""

from hf_capsule_mt.cli.train_tokenizer import main

if __name__ == "__main__":
    main()
