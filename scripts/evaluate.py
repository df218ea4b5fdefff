"""Score translations with sacreBLEU. See --help."""

from hf_capsule_mt.cli.evaluate import main

if __name__ == "__main__":
    main()
