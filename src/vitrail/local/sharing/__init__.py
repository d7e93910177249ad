"""What a site would share of its images, and how it trains on what others shared."""
