"""A custom grader, so that the verifier's processes have work."""


def grade(response: str, gold: str) -> bool:
    return f"<answer>{gold}</answer>" in response
