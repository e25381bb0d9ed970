"""`python -m placer.cli`."""

from placer.cli.entry import main

main()
