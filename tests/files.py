from tests.support.files import *  # noqa: F403
