"""Random worlds in which all features of gangs cross each other, who judges them, and old against new.

A world is a list of plain manifests that follows from a seed alone. Nothing here but ``decider`` uses
closeby's code, so that it can judge it.
"""
