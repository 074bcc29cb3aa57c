"""The admission check for Kueue: quotas are Kueue's, places are closeby's."""
