"""`python -m chaos`: the campaign."""

import sys

from chaos.campaign import main

sys.exit(main())
