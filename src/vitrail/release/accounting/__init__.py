"""What noise promises: accountants, the Gaussian mechanism, games that check them."""
