"""Dependencies: the graph of an application and its orders, roles and buckets, traffic."""
