"""Pages of single commands: explain, audit, attack, leakage, fidelity, preview."""
