"""What is known of every node for every class of pods: filters, scores, counts, and why not."""
