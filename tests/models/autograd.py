from tests.support.autograd import *  # noqa: F403
