from tests.support.rows import *  # noqa: F403
