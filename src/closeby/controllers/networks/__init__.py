"""The status of NetworkTopologies: costs out of latencies that were measured."""
