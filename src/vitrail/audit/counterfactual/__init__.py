"""What a suspected region does: covered, swapped in, looked at by each prototype."""
