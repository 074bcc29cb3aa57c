"""The status of AppGroups."""
