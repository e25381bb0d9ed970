"""A placement as one page to read and pass on, and as figures for papers: data first, then drawn."""
