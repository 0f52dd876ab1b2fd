from tests.support.rewards import *  # noqa: F403
