"""What is in a user's images: check them, guess their layout, write a first configuration."""
