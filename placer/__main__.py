"""`python -m placer`: the same as `placer`."""

from placer.cli import main

main()
