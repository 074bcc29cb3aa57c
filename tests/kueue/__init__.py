"""A real Kueue beside closeby on the test control plane: quotas are Kueue's, places are closeby's."""
