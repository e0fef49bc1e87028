"""`python -m pixelcert`: the command line, where its script is not on the path."""

from .commands import main

main()
