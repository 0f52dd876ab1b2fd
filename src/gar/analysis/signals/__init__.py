"""A bench for similarities of responses and anchors: questions, similarities, and how often each ranks rightly."""
