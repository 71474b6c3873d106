"""What `tools/simulate.py` compares: loads, chunk policies, measured figures."""
