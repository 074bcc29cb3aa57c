"""What a person sees: tables, trees, explanations and machine-readable reports."""
