"""`python -m placer`: the same as `placer`."""

from placer.start import main

main()
