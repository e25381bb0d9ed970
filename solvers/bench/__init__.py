"""The reference benchmark of the placement problem: instances, rivals, records and how time grows."""
