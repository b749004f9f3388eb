"""`python3 -m reviser`: the command line from a bare checkout."""

import sys

from reviser.cli import main

sys.exit(main())
