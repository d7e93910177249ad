"""Which site has which images, and which of them it trains on."""
