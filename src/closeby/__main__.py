"""Makes `python -m closeby` the same as the command `closeby`."""

from closeby.cli.main import main

if __name__ == "__main__":
    main()
