"""What all packages share: one root of errors, checks of settings, files that are written whole or not at all."""
