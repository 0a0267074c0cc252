"""`python -m acp_conformance`."""

import sys

from acp_conformance.kit_main import main

sys.exit(main())
