"""Ways of running a model beside each other: GPU-only, experts streamed from host memory, hot and cold apart."""
