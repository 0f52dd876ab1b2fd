"""A user's own grader."""


def grade_last_character(response: str, gold: str) -> bool:
    return response[-1] == gold
