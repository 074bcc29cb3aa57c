"""Keeping nodes free for the gang that has waited longest, so that small items do not pass it for ever."""
