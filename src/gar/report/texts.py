"""Texts of models for the page."""

import ast

from gar.types import Prompt


def recorded_prompt(prompt: str) -> Prompt:
    """Parse chat messages, which are recorded as the text of a Python list. Any other prompt is returned unchanged."""
    if not prompt.startswith("[{'"):
        return prompt
    try:
        messages = ast.literal_eval(prompt)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return prompt
    whole = isinstance(messages, list) and all(
        isinstance(message, dict) and {"role", "content"} <= message.keys() for message in messages
    )
    return messages if whole else prompt


def readable_prompt(prompt: str) -> str:
    """A recorded prompt for readers, with chat messages one below the other."""
    messages = recorded_prompt(prompt)
    if isinstance(messages, str):
        return messages
    return "\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages)
