"""Token ids to values: `engine` packs rows into batches, `backends` runs them, `pairs` joins question and text."""
