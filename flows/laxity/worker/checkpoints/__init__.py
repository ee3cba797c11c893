"""What is saved of a training between epochs, and how it comes back."""
