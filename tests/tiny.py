from tests.support.tiny import *  # noqa: F403
