"""`python -m acp_agent`."""

import sys

from acp_agent.cli import main

sys.exit(main())
