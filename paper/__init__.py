"""The paper and our own studies, reproduced from a clone of the repository. Not shipped."""
