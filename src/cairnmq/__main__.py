"""`python -m cairnmq` is the command `cairn`."""

import sys

from cairnmq.cli.main import main

sys.exit(main())
