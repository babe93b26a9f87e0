"""The trace contract in code: what a run leaves behind, and who may write it where."""
