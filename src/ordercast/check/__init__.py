"""The laws in plain Python: the reference that judges traces, whoever wrote them."""
