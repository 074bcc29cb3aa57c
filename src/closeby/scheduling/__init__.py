"""How a decision is made: extension points, the queue, the cycle, the search over domains, reasons."""
