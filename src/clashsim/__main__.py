"""`python -m clashsim`, the same as `clashsim`."""

import sys

from clashsim.cli import main

sys.exit(main())
