"""kube-scheduler as the judge: the same clusters and pods, and the nodes that it and closeby would allow."""
