"""`python -m hf_capsule_mt`: the command `hf-capsule-mt`."""

from hf_capsule_mt_command import main

if __name__ == "__main__":
    main()
