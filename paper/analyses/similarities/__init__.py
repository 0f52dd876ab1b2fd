"""A benchmark of similarities between responses and anchors: questions, similarities, and how often each is right."""
