"""One expert-MLP interface, and one file per real kernel backend."""
