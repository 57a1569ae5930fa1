"""`python -m gq` is `gq`."""

from gq.main import main

main()
