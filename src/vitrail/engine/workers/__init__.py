"""Worker processes: a pool that plays the turns of sites, in this process or in others."""
