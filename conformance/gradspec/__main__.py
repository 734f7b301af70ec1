"""`python -m gradspec` is the command `gradspec`."""

from gradspec.cli import main

if __name__ == "__main__":
    main()
