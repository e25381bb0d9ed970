"""The commands as Python functions, one per file; `import placer` offers them all."""
