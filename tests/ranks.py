from tests.support.ranks import *  # noqa: F403
