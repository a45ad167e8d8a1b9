"""`python -m vmcjob`: the same as the `vmcjob` command."""

from vmcjob.cli import main

if __name__ == "__main__":
    main()
