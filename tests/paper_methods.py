from tests.support.paper_methods import *  # noqa: F403
