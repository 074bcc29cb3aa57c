"""Pictures of clusters and of what happened on them, as SVG, PNG and HTML."""
