"""What a run keeps on disk: folders, checkpoints, transcript, journal, cached features."""
