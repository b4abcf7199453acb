"""A local page that shows what goes into a prompt, and how the search came to it."""
